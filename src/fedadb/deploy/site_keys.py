"""The keys by which a server recognises its sites, as their files have them."""

import hashlib
from base64 import b64decode, b64encode
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedadb.core.errors import BadInput

NOT_OURS = "it is of another kind; `fedadb deploy keys --site` makes one"
MAX_PUBLIC = 16 << 10  # bytes of a public key's file; ours have 220


def read_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A site's private key; BadInput if the file is none."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except Exception as error:  # cryptography raises many kinds for a damaged file
        raise BadInput(f"{path} is not a site's private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(f"{path} is not a site's private key: {NOT_OURS}")
    return key


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """A site's public key; BadInput if the file is none."""
    try:
        with path.open("rb") as file:  # a running server reads it, whatever somebody puts there
            content = file.read(MAX_PUBLIC + 1)
        if len(content) > MAX_PUBLIC:
            raise ValueError(f"it has more than {MAX_PUBLIC} bytes")
        key = load_ssh_public_key(content)
    except Exception as error:  # as above
        raise BadInput(f"{path} is not a site's public key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadInput(f"{path} is not a site's public key: {NOT_OURS}")
    return key


def public_line(key: ec.EllipticCurvePublicKey) -> str:
    """The key in OpenSSH's format, without a comment: the same text for the same key."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def fingerprint(public: str) -> str:
    """The fingerprint of a site's public key, as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(b64decode(public.split()[1])).digest()
    return f"SHA256:{b64encode(digest).decode().rstrip('=')}"
