"""What the proxy knows about the requests of Flower's nodes: who signed one, and what it carries.

A node signs the time of each request with its key. The signature does not cover the body: TLS
protects that.
"""

import datetime as dt
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

from fedadb.core.errors import BadInput
from fedadb.deploy.site_keys import read_public_key

PATH = re.compile(r"/v1/fleet/[a-z-]+")
ACTIVATE, PULL = "/v1/fleet/activate-node", "/v1/fleet/pull-messages"
UPLOADS = ("/v1/fleet/push-messages", "/v1/fleet/push-object")
# Of our own: the proxy answers it by itself, to its sites.
VERSIONS = "/v1/fleet/versions"
VERSIONS_HERE = {name: version(name) for name in ("fedadb", "flwr")}  # on which both must agree
# Flower's answer to a node that nobody registered. Nodes explain it to their users; after a 401
# they end without an explanation.
NOT_REGISTERED = b'{"code": 2004, "detail": "this key is not in the directory of sites"}'

Keys = Mapping[bytes, tuple[str, ec.EllipticCurvePublicKey]]


def read_keys(directory: Path) -> Keys:
    """The names and public keys of the sites in a directory, by the text that nodes send.

    A file that is not a key accepts nobody. It must not keep the others from being read: one of
    them may have been revoked.
    """
    found = {}
    for path in sorted(directory.glob("*.pub")):
        with suppress(BadInput):
            key = read_public_key(path)
            text = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            found[text] = (path.stem, key)
    return found


def has_foreign_key(headers: Mapping[str, str], keys: Keys) -> bool:
    """Whether the request names a key that is no site's."""
    try:
        return b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True) not in keys
    except (KeyError, ValueError):
        return False


def signer(headers: Mapping[str, str], keys: Keys, now: dt.datetime) -> str | None:
    """The site that signed a request, or None; the SuperLink has the same rules."""
    try:
        site, key = keys[b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)]
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        timestamp = headers[TIMESTAMP_HEADER]
        age = (now - dt.datetime.fromisoformat(timestamp)).total_seconds()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        key.verify(signature, timestamp.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    except (KeyError, ValueError, TypeError, OverflowError, InvalidSignature):
        return None
    return site


def delivers_message(response: bytes) -> bool:
    """Whether the SuperLink's response to a pull has a message for the node."""
    return bool(PullMessagesResponse.FromString(response).messages_list)
