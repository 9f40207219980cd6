"""What a site stores of its masked answers in a run, so that no mask covers two vectors.

An answer is on the disk before it is sent. If the server asks again, it gets the same bytes: what a
second training computes may differ in bits, and the difference of two answers under one mask would
be the difference of two updates.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from fedadb.deploy.refusals import MASK_USED, Refusal
from fedadb.secagg.masks import TRAIN, Exchange
from fedadb.storage.files import read_json, write_atomically

USED = "used.json"  # the digest of every exchange that was answered
KEPT = 2  # answers of each kind: the server asks again for the newest one only
DIGESTS = TypeAdapter(dict[str, str])


class MaskedAnswers(NamedTuple):
    """The answers of a site in one run, as files in a directory."""

    directory: Path

    def answer(self, exchange: Exchange, make: Callable[[], bytes]) -> bytes:
        """The stored answer to the exchange, or the one that `make` makes and that is now stored.

        A Refusal if the masks of the exchange may have been used for an answer that is gone.
        """
        digest, used = exchange.digest.hex(), self._used()
        label, path = _label(exchange, digest), self._path(exchange.kind, digest)
        if used.get(label, digest) != digest:
            raise _refusal(f"round {exchange.t} was asked for with something else before")
        if path.exists():
            answer = path.read_bytes()
        elif digest in used.values():
            raise _refusal("its masked reply has been deleted")
        else:
            answer = make()
            write_durably(path, answer)
        if label not in used:  # also if the site was killed after it had written the answer
            used[label] = digest
            write_durably(self.directory / USED, DIGESTS.dump_json(used))
            self._delete_old(used, exchange.kind)
        return answer

    def answered_round(self, t: int) -> bool:
        """Whether round t was answered, in any attempt."""
        return any(label.startswith(f"{TRAIN} {t} ") for label in self._used())

    def _delete_old(self, used: dict[str, str], kind: str) -> None:
        of_kind = [digest for label, digest in used.items() if label.startswith(f"{kind} ")]
        for digest in of_kind[:-KEPT]:
            self._path(kind, digest).unlink(missing_ok=True)

    def _used(self) -> dict[str, str]:
        path = self.directory / USED
        return read_json(path, DIGESTS) if path.exists() else {}

    def _path(self, kind: str, digest: str) -> Path:
        return self.directory / f"{kind}-{digest}.safetensors"


def write_durably(path: Path, content: bytes) -> None:
    """Replace the file in one step, and return when a power cut cannot undo it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, content)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _label(exchange: Exchange, digest: str) -> str:
    """By what an exchange is answered once: a round by its number, all else by its digest."""
    what = f"{exchange.t} {exchange.attempt}" if exchange.kind == TRAIN else digest
    return f"{exchange.kind} {what}"


def _refusal(sentence: str) -> Refusal:
    return Refusal(MASK_USED, f"{sentence}, and masks are never used twice", travels=True)
