"""Keys of a run: each site makes one for the run and signs it, and each pair of sites shares one.

Secrets come from the operating system, never from an experiment's seed, which everyone knows.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
KEY, ROSTER, PAIR = (f"fedadb secagg 1 {what}\0".encode() for what in ("key", "roster", "pair"))
SIGNED_BY = ec.ECDSA(hashes.SHA384())


def canonical(value: Any) -> bytes:
    """The value as JSON with one form: two parties that hash it get the same digest."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def make_private_key() -> bytes:
    """A new private key for one run."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign_key(
    identity: ec.EllipticCurvePrivateKey, run: str, name: str, key: bytes, settings: str
) -> bytes:
    """The signature by which a site says that this public key is its own in this run.

    Args:
        identity: The site's private key, by which others know it.
        run: The run's identity.
        name: The site's name.
        key: The public key for the run.
        settings: The digest of the settings that the server and all sites share.
    """
    return identity.sign(_statement(run, name, key, settings), SIGNED_BY)


def is_signed(
    identity: ec.EllipticCurvePublicKey,
    signature: bytes,
    run: str,
    name: str,
    key: bytes,
    settings: str,
) -> bool:
    """Whether the site with that identity signed the public key with `sign_key`."""
    try:
        identity.verify(signature, _statement(run, name, key, settings), SIGNED_BY)
    except InvalidSignature:
        return False
    return True


def _statement(run: str, name: str, key: bytes, settings: str) -> bytes:
    # The prefix keeps it apart from all else that the same key signs for Flower.
    return KEY + canonical({"run": run, "name": name, "key": key.hex(), "settings": settings})


def in_order(names: Iterable[str]) -> list[str]:
    """The names of sites in the order in which masks are added and subtracted."""
    return sorted(names, key=str.encode)


def roster_digest(run: str, public: Mapping[str, bytes]) -> bytes:
    """The digest of who takes part in a run, with which public keys."""
    sites = {name: key.hex() for name, key in public.items()}
    return hashlib.sha256(ROSTER + canonical({"run": run, "sites": sites})).digest()


def pair_keys(run: str, name: str, private: bytes, public: Mapping[str, bytes]) -> dict[str, bytes]:
    """The key that the site of that name shares with each other site of the run.

    Raises ValueError if a public key is one of the few that give no secret.
    """
    own, salt = X25519PrivateKey.from_private_bytes(private), roster_digest(run, public)
    keys = {}
    for other in in_order(public.keys() - {name}):
        shared = own.exchange(X25519PublicKey.from_public_bytes(public[other]))
        low, high = in_order([name, other])
        info = PAIR + low.encode() + b"\0" + high.encode()
        keys[other] = HKDF(hashes.SHA256(), KEY_BYTES, salt, info).derive(shared)
    return keys
