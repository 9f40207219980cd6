"""Checks of a server's or a site's set-up: one sentence each, with the way out.

A check returns what it found, or raises BadInput or Fault with a sentence that says what to do.
"""

import datetime as dt
import email.utils
import shutil
import ssl
import stat
from base64 import b64encode
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, NamedTuple

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys
from fedadb.deploy.accepted_sites import require_keys, site_names
from fedadb.deploy.agreement import federation_data
from fedadb.deploy.certificates import end_of
from fedadb.deploy.ports import is_open, parse_address, require_free_port
from fedadb.deploy.roster import read_roster
from fedadb.deploy.site import check_data
from fedadb.deploy.site_keys import fingerprint, public_line, read_private_key, read_public_key
from fedadb.experiment.config import Experiment

FREE_BYTES = 1 << 30  # that the disk should have
NOWHERE = "/v1/fleet/doctor"  # the proxy forwards a site's requests there, and nobody answers them
SECONDS = 10.0  # to wait for the server


class Finding(NamedTuple):
    """What a check found."""

    what: str
    sentence: str
    ok: bool


class Check(NamedTuple):
    what: str
    run: Callable[[], str]


def findings(checks: list[Check]) -> Iterator[Finding]:
    """Run the checks one after the other; each may fail."""
    for what, run in checks:
        try:
            yield Finding(what, run(), ok=True)
        except (BadInput, Fault) as error:
            yield Finding(what, str(error), ok=False)
        except OSError as error:
            path = f"{error.filename}: " if error.filename else ""
            yield Finding(what, f"{path}{error.strerror or error}", ok=False)


def server_checks(directory: Path, experiment: Experiment | None, listen: str) -> list[Check]:
    """The checks of a server; without an experiment, its data are not checked."""
    checks = [
        Check("versions", versions),
        Check("keys", lambda: _server_keys(directory)),
        Check("certificate", lambda: _certificate(directory / keys.SERVER)),
        Check("authority", lambda: _certificate(directory / keys.CA)),
        Check("clock", lambda: _clock_of_server(directory)),
        Check("port", lambda: _port(listen)),
        Check("disk", lambda: _disk(directory)),
    ]
    if experiment is not None:
        checks.append(Check("data", lambda: _server_data(experiment)))
    return checks


def site_checks(
    directory: Path, experiment: Experiment | None, server: str | None, data: str | None
) -> list[Check]:
    """The checks of a site; what is not given is not checked."""
    checks = [
        Check("versions", versions),
        Check("keys", lambda: _site_keys(directory)),
        Check("authority", lambda: _certificate(directory / keys.CA)),
        Check("disk", lambda: _disk(directory)),
    ]
    if experiment is not None and experiment.deployment.secure_aggregation:
        checks.append(Check("roster", lambda: _roster(directory)))
    if experiment is not None and data is not None:
        checks.append(Check("data", lambda: _site_data(experiment, data)))
    if server is not None:
        checks += [
            Check("server", lambda: _server(directory, server)),
            Check("clock", lambda: _clock_of_site(directory, server)),
            Check("access", lambda: _access(directory, server)),
        ]
    return checks


def versions() -> str:
    """The versions on which a server and its sites must agree, and others."""
    names = ("fedadb", "flwr", "torch")
    installed = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{installed}, Python {python_version()}; fedadb must be the same at all sites"


def _server_keys(directory: Path) -> str:
    require_keys(directory)
    _require_owner_only(directory / keys.CA_KEY)
    _require_owner_only(directory / keys.SERVER_KEY)
    _require_owner_only(directory / keys.SECRET)
    sites = site_names(directory)
    return f"all files are there, and the keys of {len(sites)} sites: {', '.join(sites)}"


def _site_keys(directory: Path) -> str:
    key = directory / keys.SITE_KEY
    if not key.is_file():
        raise BadInput(f"{key} is missing: `fedadb deploy keys {directory} --site` makes it")
    public = public_line(read_private_key(key).public_key())
    _require_owner_only(key)
    given = directory / keys.SITE_PUBLIC  # what the server has got, or will get
    if given.exists() and public_line(read_public_key(given)) != public:
        raise BadInput(f"{given} is not the public half of {key}: make new keys in a new directory")
    return f"this site's key has the fingerprint {fingerprint(public)}"


def _roster(directory: Path) -> str:
    roster = read_roster(directory)
    return (
        f"this is {roster.name} of {', '.join(sorted(roster.public_keys))}; all of them must see "
        f"the fingerprint {roster.fingerprint}"
    )


def _require_owner_only(path: Path) -> None:
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadInput(f"others can read {path}: `chmod 600 {path}`")


def _certificate(path: Path) -> str:
    keys.require_valid(path, "a certificate of the federation")
    if warning := keys.expiry_warning(path):
        raise BadInput(warning)
    return f"{path.name} is valid until {end_of(path.read_bytes()):%d %B %Y}"


def _clock_of_server(directory: Path) -> str:
    now, made = dt.datetime.now(dt.UTC), (directory / keys.CA).stat().st_mtime
    if now.timestamp() < made:
        raise BadInput(
            f"the clock says {now:%d %B %Y %H:%M} UTC, before the keys were made: set it"
        )
    return f"the clock says {now:%d %B %Y %H:%M} UTC; sites compare theirs with it"


def _port(listen: str) -> str:
    host, port = parse_address(listen, "--listen")
    if is_open(host, port):
        return f"a process listens at {listen}: the server, if it runs"
    require_free_port(host, port, "--listen")
    return f"{listen} is free; sites must reach it through the firewall"


def _disk(directory: Path) -> str:
    free = shutil.disk_usage(directory).free
    if free < FREE_BYTES:
        raise BadInput(f"{directory} has {free / 1e9:.1f} GB left: make room for at least 1 GB")
    return f"{free / 1e9:.0f} GB are free"


def _server_data(e: Experiment) -> str:
    spec, test = federation_data(e)
    rows = "no test data of its own" if test is None else f"{len(test.y)} test rows"
    return f"{len(spec.classes)} classes of shape {spec.shape}, and {rows}"


def _site_data(e: Experiment, data: str) -> str:
    check_data(e, data)
    return f"{data} can be trained on"


def _ask(directory: Path, server: str, headers: dict[str, str]) -> httpx.Response:
    """A request to the proxy, which answers each."""
    context = ssl.create_default_context(cafile=str(directory / keys.CA))
    try:
        with httpx.Client(verify=context, timeout=SECONDS, trust_env=False) as client:
            return client.post(f"https://{server}{NOWHERE}", headers=headers)
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise Fault(
            f"{server} does not answer ({reason}): check that the server runs, --server, the "
            "firewall, and that ca.crt is the server's"
        ) from error


def _server(directory: Path, server: str) -> str:
    parse_address(server, "--server")
    _ask(directory, server, {})
    return f"{server} answers, with a certificate that ca.crt signed"


def _clock_of_site(directory: Path, server: str) -> str:
    here = dt.datetime.now(dt.UTC)  # before the request: a slow answer makes no clock fast
    date = _ask(directory, server, {}).headers.get("date", "")
    if not date:
        raise Fault(f"{server} does not say what time it is: it is not a server of this version")
    ahead = (here - email.utils.parsedate_to_datetime(date)).total_seconds()
    if not -TIMESTAMP_TOLERANCE < ahead < SYSTEM_TIME_TOLERANCE:
        where = "ahead of" if ahead > 0 else "behind"
        raise BadInput(
            f"this clock is {abs(ahead):.0f} s {where} the server's: set it, for example by NTP; "
            f"it may be {TIMESTAMP_TOLERANCE} s behind and {SYSTEM_TIME_TOLERANCE} s ahead"
        )
    return f"this clock and the server's differ by {abs(ahead):.0f} s"


def _access(directory: Path, server: str) -> str:
    if _ask(directory, server, _signature(directory)).status_code == httpx.codes.UNAUTHORIZED:
        raise BadInput(
            f"{server} does not accept this site's key: its operator puts "
            f"{directory / keys.SITE_PUBLIC} into sites/ as NAME.pub"
        )
    return "the server accepts this site's key"


def _signature(directory: Path) -> dict[str, str]:
    """The headers by which the proxy recognises a site."""
    key: Any = load_ssh_private_key((directory / keys.SITE_KEY).read_bytes(), None)
    time = dt.datetime.now(dt.UTC).isoformat()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = key.sign(time.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public).decode(),
        TIMESTAMP_HEADER: time,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(signature).decode(),
    }
