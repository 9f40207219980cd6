"""Clients that hold the same number of classes each, after McMahan et al. (2017).

Each class is cut into equal shards, the more the larger it is, and every client is dealt so many
shards, all of different classes.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows, deal


@dataclass(frozen=True)
class Shards:
    """The fewer classes a client holds, the more clients differ."""

    classes: Annotated[int, Ge(1)] = 2  # of each client

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        totals = np.bincount(labels.y)
        present = np.flatnonzero(totals)
        if self.classes > len(present):
            raise BadInput(
                f"federation.partition.classes = {self.classes}: the data have {len(present)}"
            )
        if clients * self.classes < len(present):
            raise BadInput(
                f"shards: {clients} clients with {self.classes} classes each cannot hold all "
                f"{len(present)}; raise federation.clients or federation.partition.classes"
            )
        shards = self._shards(totals[present], clients)
        held = self._dealt(shards, clients, rng)
        pools = [rng.permutation(np.flatnonzero(labels.y == c)) for c in present]
        holders = [np.flatnonzero(of_class) for of_class in held.T]
        return [rng.permutation(hand) for hand in deal(pools, holders, clients)]

    def _shards(self, totals: Rows, clients: int) -> Rows:
        """How many shards of each class: one, and then one more wherever they are largest."""
        shards = np.ones(len(totals), dtype=np.int64)
        most = np.minimum(clients, totals)  # a client has one shard of a class, a shard has a row
        for _ in range(clients * self.classes - len(totals)):
            size = np.where(shards < most, totals / shards, 0)
            if not size.any():
                raise BadInput(
                    f"shards: {totals.sum()} rows are too few for {clients} clients with "
                    f"{self.classes} classes each; lower federation.clients"
                )
            shards[size.argmax()] += 1
        return shards

    def _dealt(self, shards: Rows, clients: int, rng: np.random.Generator) -> Rows:
        """Which client holds a shard of which class, clients × classes.

        A class with as many shards as clients are left to be served goes to each of them;
        beyond that, a class is drawn the more often the more shards of it are left.
        """
        left = shards.copy()
        held = np.zeros((clients, len(shards)), dtype=np.int64)
        for served, k in enumerate(rng.permutation(clients)):
            due = left == clients - served
            drawn = np.where(due, 0, left)
            free = self.classes - int(due.sum())
            if free:
                chosen = rng.choice(len(left), free, replace=False, p=drawn / drawn.sum())
                due[chosen] = True
            held[k] = due
            left -= held[k]
        return held
