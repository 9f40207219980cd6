"""A site's part of secure aggregation: its key for the run, the keys of the others, and its masks.

The directory `state/RUN/secagg` holds the private key, what was agreed on, and masked answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from fedadb.deploy.agreed import AGREED, AGREED_FORM, SECAGG, Agreed, require_new_seed
from fedadb.deploy.key_offers import Offer, make_offer, verified_keys
from fedadb.deploy.masked_answers import MaskedAnswers, write_durably
from fedadb.deploy.messages import Request, tensors_to_bytes
from fedadb.deploy.refusals import BAD_DATA, Refusal, not_allowed
from fedadb.deploy.roster import Roster
from fedadb.secagg.fixed_point import LARGEST, Words
from fedadb.secagg.keys import in_order, make_private_key, pair_keys, public_key, roster_digest
from fedadb.secagg.masks import ROWS, Exchange, mask
from fedadb.storage.files import read_json, replace_file

PRIVATE, OFFER = "key", "offer.json"
MASKED = "masked"  # the name of the only tensor in a masked answer
OFFER_FORM = TypeAdapter(Offer)


@dataclass(frozen=True)
class SecureSite:
    """A site in one run."""

    run: str
    settings: str  # the digest of the shared settings
    roster: Roster
    state: Path  # the directory with one subdirectory per run

    @property
    def directory(self) -> Path:
        return self.state / self.run / SECAGG

    def offer(self) -> Offer:
        """This site's key for the run, which is made when the server first asks for it."""
        path, private = self.directory / OFFER, self.directory / PRIVATE
        if path.exists():
            return read_json(path, OFFER_FORM)
        if not private.exists():
            forget_finished_runs(self.state)
            private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(private, make_private_key())
        key = public_key(private.read_bytes())
        offer = make_offer(key, self.roster, self.run, self.settings)
        write_durably(path, offer.model_dump_json().encode())
        return offer

    def agree(
        self, offers: Mapping[str, Any], rows: int, rounds: int, seed: int
    ) -> tuple[str, bytes]:
        """The digest of all keys if they are those of this site's roster; and its masked rows."""
        verified = verified_keys(offers, self.roster, self.run, self.settings)
        keys = {name: key.hex() for name, key in verified.items()}
        if keys[self.roster.name] != self.offer().key:
            raise not_allowed("the server sent another key than this site's own")
        if rows > LARGEST // len(keys):
            raise Refusal(BAD_DATA, f"{rows} rows are too many for secure aggregation")
        path = self.directory / AGREED
        if path.exists():
            agreed = self.agreed()
            for name, key in keys.items():
                if agreed.keys.get(name) != key:
                    raise not_allowed(f"{name} has another key than when the run began")
            self.require_rows(rows)
        else:
            require_new_seed(self.state, keys, rows, seed)
            agreed = Agreed(keys=keys, rows=rows, rounds=rounds, seed=seed)
            write_durably(path, agreed.model_dump_json().encode())
        digest = roster_digest(self.run, verified).hex()
        exchange = Exchange(self.run, tuple(keys), 0, 0, digest, scale=0, words=1, kind=ROWS)
        return digest, self.masked(exchange, lambda: np.array([rows], dtype=np.uint32))

    def masked(self, exchange: Exchange, make: Callable[[], Words]) -> bytes:
        """The masked words of an exchange as tensors: always the same, however often it is asked.

        `make` computes the words, if they have not been sent before.
        """

        def answer() -> bytes:
            words = torch.from_numpy(self._mask(make(), exchange))
            return tensors_to_bytes({MASKED: words})

        return MaskedAnswers(self.directory).answer(exchange, answer)

    def exchange(self, request: Request, order: str, scale: int, words: int, kind: str) -> Exchange:
        """The exchange that a request asks for by that order, if the keys have been agreed on."""
        sites, t = tuple(self.agreed().keys), request.round.t
        return Exchange(self.run, sites, t, request.attempt, order, scale, words, kind)

    def require_own_number(self, client: int) -> None:
        """Raise a Refusal unless this is the client of that number, in the order of the names.

        The order of a client's rows follows from its number, which masks do not depend on: it
        differs from site to site. A server that changes it for one site would single that one out.
        """
        if client != (own := in_order(self.agreed().keys).index(self.roster.name)):
            raise not_allowed(f"this site is client {own} of the run, not {client}")

    def agreed(self) -> Agreed:
        path = self.directory / AGREED
        if not path.exists():
            raise not_allowed("the sites have not exchanged keys in this run")
        return read_json(path, AGREED_FORM)

    def require_rows(self, rows: int) -> None:
        """Raise a Refusal if the site's data have changed since the run began."""
        if rows != (before := self.agreed().rows):
            raise Refusal(BAD_DATA, f"this site had {before} rows when the run began, not {rows}")

    def end(self) -> None:
        """Delete the private key: nobody can compute the masks of this run any more."""
        (self.directory / PRIVATE).unlink(missing_ok=True)

    def _mask(self, words: Words, exchange: Exchange) -> Words:
        private = self.directory / PRIVATE
        if not private.exists():
            raise not_allowed("this site has deleted its key of the run, which has ended")
        keys, name = _bytes(self.agreed().keys), self.roster.name
        try:
            pairs = pair_keys(self.run, name, private.read_bytes(), keys)
        except ValueError as error:  # one of the few keys that give no secret
            raise not_allowed("the key of a site is not one for a secret") from error
        return mask(words, name, pairs, exchange)


def forget_finished_runs(state: Path) -> None:
    """Delete the private keys of runs whose last round was answered.

    The server says when a run has ended; this is for a site that was away then.
    """
    for private in state.glob(f"*/{SECAGG}/{PRIVATE}"):
        agreed = private.with_name(AGREED)
        if agreed.exists():
            last = read_json(agreed, AGREED_FORM).rounds
            if MaskedAnswers(private.parent).answered_round(last):
                private.unlink()


def _bytes(keys: Mapping[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(key) for name, key in keys.items()}
