"""Public keys for a run with secure aggregation, as sites offer them to each other.

The server passes them on. A site accepts a key only if the site of that name in its own roster has
signed it.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from fedadb.deploy.messages import shown
from fedadb.deploy.refusals import BAD_REQUEST, Refusal, not_allowed
from fedadb.deploy.roster import Roster
from fedadb.secagg.keys import KEY_BYTES, is_signed, sign_key


class Offer(BaseModel):
    """A site's public key for a run, and its signature, in hexadecimal digits."""

    model_config = ConfigDict(strict=True, extra="forbid")

    key: str
    signature: str


def make_offer(key: bytes, roster: Roster, run: str, settings: str) -> Offer:
    """The offer of this site's public key; `settings` is the digest of the shared settings."""
    signature = sign_key(roster.own_key, run, roster.name, key, settings)
    return Offer(key=key.hex(), signature=signature.hex())


def verified_keys(
    offers: Mapping[str, Any], roster: Roster, run: str, settings: str
) -> dict[str, bytes]:
    """The keys of all sites, each signed by the site of that name in the roster."""
    known = roster.public_keys
    if offers.keys() != known.keys():
        there = ", ".join(sorted(shown(name, 60) for name in offers))
        raise not_allowed(
            f"the server's sites are {there}, and those of this site's roster are "
            f"{', '.join(sorted(known))}"
        )
    verified: dict[str, bytes] = {}
    for name, identity in known.items():
        key, signature = _read(name, offers[name])
        if not is_signed(identity, signature, run, name, key, settings):
            raise not_allowed(
                f"the key of {name} is not signed by {name}'s public key in this site's roster"
            )
        if key in verified.values():
            raise not_allowed(f"the key of {name} is also that of another site")
        verified[name] = key
    return verified


def _read(name: str, offer: Any) -> tuple[bytes, bytes]:
    try:
        read = Offer.model_validate_json(json.dumps(offer))
        key, signature = bytes.fromhex(read.key), bytes.fromhex(read.signature)
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
    except ValueError as error:
        sentence = f"the key of {name} cannot be read"
        raise Refusal(BAD_REQUEST, sentence, travels=True) from error
    return key, signature
