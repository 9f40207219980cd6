"""Random numbers by address: equal addresses give equal numbers, in any order of execution."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Stream:
    """The address of a random stream, such as (seed, "client", round, client).

    A Stream has no state: each call of `generator` returns a new generator in the same initial
    state. Numbers are always drawn on the CPU, so they do not depend on the device.

    ```python
    rng = fedadb.Stream(seed=0).at("client", 3, 17)
    torch.randn(2, generator=rng.generator())
    ```
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def at(self, *parts: str | int) -> "Stream":
        """The stream at an address below this one."""
        # NumPy integers and Python integers give the same address.
        return Stream(
            self.seed, self.path + tuple(p if isinstance(p, str) else int(p) for p in parts)
        )

    def generator(self) -> torch.Generator:
        """A torch generator in the stream's initial state."""
        return torch.Generator().manual_seed(self._key())

    def numpy(self) -> np.random.Generator:
        """A NumPy generator in the stream's initial state."""
        return np.random.default_rng(self._key())

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Seed torch's global generator within the block, and restore it afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._key())
            yield

    def _key(self) -> int:
        address = repr((self.seed, *self.path)).encode()
        return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "little")
