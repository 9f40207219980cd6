"""Chance that only the server knows: who takes part in a private run's rounds, and the noise.

All other random numbers follow from the experiment's seed, which every site has. These follow from
a key that is drawn for each attempt at a round and is never stored: nobody who reads the server's
disk later can subtract the noise. The directory of a run's secrets is not the run's directory,
which may be shown to others. It holds `not-private.jsonl`, which says who was asked in each round
and whose reply was used.
"""

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from fedadb.core.errors import Fault
from fedadb.experiment.build import poisson_sample
from fedadb.experiment.settings import Federation
from fedadb.storage.files import parse_json

KEY_BYTES = 32
LOG = "not-private.jsonl"


class Note(TypedDict):
    """A line of the log: a round is tried; or who is asked in it, or whose reply was used."""

    round: int
    asked: NotRequired[list[int]]
    used: NotRequired[list[int]]


NOTE = TypeAdapter(Note)


def open_secrets(directory: Path, federation: Federation, rounds: int) -> "SecretSource":
    """The secrets of a run that has recorded so many rounds."""
    log = directory / LOG
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lines = _complete_lines(log) if log.exists() else []
        known = [NOTE.validate_python(parse_json(line), strict=True) for line in lines]
    except (OSError, ValueError) as error:
        raise _lost(log, rounds) from error
    source = SecretSource(log, federation, known)
    if source.releases(rounds) < rounds:
        raise _lost(log, rounds)
    return source


@dataclass(frozen=True)
class SecretSource:
    """Draws clients and noise by a key; each time that a round is tried, by another one.

    The same noise on other replies would reveal how the replies differ. A round is noted before
    anything is drawn for it, and every note counts as a release, even if the round did not end.
    """

    file: Path
    federation: Federation
    log: list[Note] = field(repr=False)  # the lines of the file
    keys: dict[int, bytes] = field(default_factory=dict, repr=False)  # of the last round alone

    secret = True

    def sample(self, t: int) -> list[int]:
        self._note({"round": t})
        self.keys.clear()
        self.keys[t] = secrets.token_bytes(KEY_BYTES)
        drawn = uniforms(self._derived("sampling", t), self.federation.clients)
        clients = poisson_sample(self.federation, drawn)
        self._note({"round": t, "asked": clients})
        return clients

    def normals(self, t: int, name: str, n: int) -> Tensor:
        return torch.from_numpy(normals(self._derived(f"noise {name}", t), n))

    def releases(self, t: int) -> int:
        return sum(line.keys() == {"round"} for line in self.log)

    def use(self, t: int, clients: Sequence[int]) -> None:
        """Note whose replies were used."""
        self._note({"round": t, "used": list(clients)})

    def used(self, rounds: int) -> dict[int, list[int]]:
        """The clients whose replies were used, by round, up to that round."""
        found = [line for line in self.log if "used" in line]
        return {line["round"]: line["used"] for line in found if line["round"] <= rounds}

    def _derived(self, purpose: str, t: int) -> bytes:
        """A key for one purpose in round t."""
        return HKDFExpand(SHA256(), KEY_BYTES, f"fedadb dp\0{purpose}".encode()).derive(
            self.keys[t]
        )

    def _note(self, line: Note) -> None:
        with open(_open_to_append(self.file), "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.log.append(line)


def uniforms(key: bytes, n: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), of 53 bits each, from the key's ChaCha20 stream."""
    return (_words(key, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normals(key: bytes, n: int) -> NDArray[np.float64]:
    """Standard normal numbers from the key's ChaCha20 stream, by Box and Muller's formula."""
    pairs = _words(key, n + n % 2).reshape(-1, 2) >> np.uint64(11)
    radius = np.sqrt(-2 * np.log((pairs[:, 0] + 1.0) * 2.0**-53))  # + 1: no logarithm of 0
    angle = 2 * np.pi * (pairs[:, 1] * 2.0**-53)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:n]


def _words(key: bytes, n: int) -> NDArray[np.uint64]:
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * n)), dtype="<u8")


def _complete_lines(log: Path) -> list[str]:
    """The lines of the file, after an incomplete last one is cut off: nothing was drawn for it."""
    text = log.read_text()
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        os.truncate(log, len(complete.encode()))
    return complete.splitlines()


def _open_to_append(path: Path) -> int:
    """The descriptor of a file that only its owner can read."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _lost(log: Path, rounds: int) -> Fault:
    return Fault(
        f"{log} lacks notes of the {rounds} recorded rounds, without which ε cannot be counted; "
        "start a new run with another --out"
    )
