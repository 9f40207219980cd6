"""Clients that do not differ."""

from dataclasses import dataclass

import numpy as np

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows


@dataclass(frozen=True)
class Iid:
    """Shuffled rows in parts whose sizes differ by at most one."""

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        n = len(labels.y)
        if clients > n:
            raise BadInput(f"iid: {clients} clients but only {n} rows; lower federation.clients")
        return np.array_split(rng.permutation(n), clients)
