"""Randomness by address: equal addresses give equal numbers, whoever draws them and when."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Stream:
    """An address in the space of randomness, such as (seed, "client", round, client).

    Nothing is consumed: a stream can be asked for its generator any number of times and gives
    one in the same state each time. Numbers are always drawn on the CPU, so that a device does
    not change them.
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def at(self, *parts: str | int) -> "Stream":
        # Whole numbers of numpy are the same address as Python's.
        return Stream(
            self.seed, self.path + tuple(p if isinstance(p, str) else int(p) for p in parts)
        )

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self._key())

    def numpy(self) -> np.random.Generator:
        return np.random.default_rng(self._key())

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """For code that draws from torch's global generator, which is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._key())
            yield

    def _key(self) -> int:
        address = repr((self.seed, *self.path)).encode()
        return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "little")
