"""How a site reaches its server, step by step, for `fedadb deploy doctor`.

Each step returns what it found, or raises BadInput or Fault with a sentence that says what to do.
"""

import datetime as dt
import email.utils
import ssl
from base64 import b64encode
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys
from fedadb.deploy.messages import shown
from fedadb.deploy.node_requests import VERSIONS, VERSIONS_HERE
from fedadb.deploy.ports import parse_address
from fedadb.deploy.site_keys import read_private_key

SECONDS = 10.0  # to wait for the server


def ask(directory: Path, server: str, headers: dict[str, str]) -> httpx.Response:
    """Ask the proxy for its versions, which it tells its sites only."""
    parse_address(server, "--server")
    context = ssl.create_default_context(cafile=str(directory / keys.CA))
    try:
        with httpx.Client(verify=context, timeout=SECONDS, trust_env=False) as client:
            return client.post(f"https://{server}{VERSIONS}", headers=headers)
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise Fault(
            f"{server} does not answer ({reason}): check that the server runs, --server, the "
            "firewall, and that ca.crt is the server's"
        ) from error


def answers(directory: Path, server: str) -> str:
    """Whether the server answers, with a certificate of the authority."""
    ask(directory, server, {})
    return f"{server} answers, with a certificate that ca.crt signed"


def same_clock(directory: Path, server: str) -> str:
    """Whether the clocks differ by less than Flower tolerates."""
    here = dt.datetime.now(dt.UTC)  # before the request: a slow answer makes no clock fast
    date = ask(directory, server, {}).headers.get("date", "")
    try:
        ahead = (here - email.utils.parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError) as error:  # it has no date, none that is valid, or no zone
        raise Fault(
            f"{server} does not say what time it is: it is not a server of this version"
        ) from error
    if not -TIMESTAMP_TOLERANCE < ahead < SYSTEM_TIME_TOLERANCE:
        where = "ahead of" if ahead > 0 else "behind"
        raise BadInput(
            f"this clock is {abs(ahead):.0f} s {where} the server's: set it, for example by NTP; "
            f"it may be {TIMESTAMP_TOLERANCE} s behind and {SYSTEM_TIME_TOLERANCE} s ahead"
        )
    return f"this clock and the server's differ by {abs(ahead):.0f} s"


def accepts_site(directory: Path, server: str) -> str:
    """Whether the server has this site's key, and the versions on which both must agree."""
    answer = ask(directory, server, _signature(directory))
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise BadInput(
            f"{server} does not accept this site's key: its operator puts "
            f"{directory / keys.SITE_PUBLIC} into sites/ as NAME.pub"
        )
    try:
        there = answer.raise_for_status().json()
        differ = [name for name, here in VERSIONS_HERE.items() if there.get(name) != here]
    except (httpx.HTTPStatusError, ValueError, AttributeError) as error:
        raise Fault(
            f"{server} accepts this site's key, but does not tell its versions "
            f"({answer.status_code}): install the same version of fedadb at both"
        ) from error
    for name in differ:
        raise BadInput(
            f"the server has {name} {shown(str(there.get(name)), 40)}, and this site has "
            f"{VERSIONS_HERE[name]}: install the same at both"
        )
    return f"the server accepts this site's key, and has the same {' and '.join(VERSIONS_HERE)}"


def _signature(directory: Path) -> dict[str, str]:
    """The headers by which the proxy recognises a site."""
    key = read_private_key(directory / keys.SITE_KEY)
    time = dt.datetime.now(dt.UTC).isoformat()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = key.sign(time.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public).decode(),
        TIMESTAMP_HEADER: time,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(signature).decode(),
    }
