"""Identically distributed clients."""

from dataclasses import dataclass

import numpy as np

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows


@dataclass(frozen=True)
class Iid:
    """Shuffles the rows and cuts them into equal parts; sizes differ by at most one row.

    ```python
    fedadb.Federation(clients=10, partition=fedadb.Iid())
    ```
    """

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        n = len(labels.y)
        if clients > n:
            raise BadInput(f"iid: {clients} clients but only {n} rows; lower federation.clients")
        return np.array_split(rng.permutation(n), clients)
