"""Clients that do not differ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedadb.core.errors import BadInput


@dataclass(frozen=True)
class Iid:
    """Shuffled rows in parts whose sizes differ by at most one."""

    def rows(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        if clients > len(labels):
            raise BadInput(
                f"iid: {clients} clients but only {len(labels)} rows; lower federation.clients"
            )
        return np.array_split(rng.permutation(len(labels)), clients)
