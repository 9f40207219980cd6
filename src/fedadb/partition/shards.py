"""Clients with the same number of classes each, after McMahan et al. (2017).

Each class is cut into equal shards, larger classes into more. Every client receives the same
number of shards, all of different classes.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows, distribute


@dataclass(frozen=True)
class Shards:
    """Gives each client rows of exactly `classes` classes; fewer make clients differ more.

    ```python
    fedadb.Federation(clients=10, partition=fedadb.Shards(classes=2))
    ```
    """

    classes: Annotated[int, Ge(1)] = 2  # classes per client

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        totals = np.bincount(labels.y)
        present = np.flatnonzero(totals)
        if self.classes > len(present):
            raise BadInput(
                f"federation.partition.classes = {self.classes}: the data have only "
                f"{len(present)} classes"
            )
        if clients * self.classes < len(present):
            raise BadInput(
                f"shards: {clients} clients with {self.classes} classes each cannot cover all "
                f"{len(present)} classes; raise federation.clients or federation.partition.classes"
            )
        shards = self._count_shards(totals[present], clients)
        receives = self._assign(shards, clients, rng)
        pools = [rng.permutation(np.flatnonzero(labels.y == c)) for c in present]
        return distribute(pools, receives, rng)

    def _count_shards(self, totals: Rows, clients: int) -> Rows:
        """The number of shards per class: each further one goes to the class with the largest."""
        shards = np.ones(len(totals), dtype=np.int64)
        most = np.minimum(clients, totals)  # one shard per client and class, one row per shard
        for _ in range(clients * self.classes - len(totals)):
            size = np.where(shards < most, totals / shards, 0)
            if not size.any():
                raise BadInput(
                    f"shards: {totals.sum()} rows are too few for {clients} clients with "
                    f"{self.classes} classes each; lower federation.clients"
                )
            shards[size.argmax()] += 1
        return shards

    def _assign(self, shards: Rows, clients: int, rng: np.random.Generator) -> Rows:
        """Clients × classes, 1 where the client receives a shard of the class.

        A class with as many remaining shards as remaining clients goes to all of them. Otherwise
        classes are drawn with probabilities proportional to their remaining shards.
        """
        left = shards.copy()
        receives = np.zeros((clients, len(shards)), dtype=np.int64)
        for served, k in enumerate(rng.permutation(clients)):
            chosen = left == clients - served
            weights = np.where(chosen, 0, left)
            free = self.classes - int(chosen.sum())
            if free:
                drawn = rng.choice(len(left), free, replace=False, p=weights / weights.sum())
                chosen[drawn] = True
            receives[k] = chosen
            left -= receives[k]
        return receives
