"""The interface of partitions."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Row numbers of the training data, or one number per row."""


class Labels(NamedTuple):
    """The class and, if the data have several domains, the domain of each training row.

    ```python
    labels = fedadb.Labels(y=shard.examples.y.numpy())
    fedadb.Dirichlet(alpha=0.5).rows(labels, clients=4, rng=fedadb.Stream(seed=0).numpy())
    ```
    """

    y: Rows
    domain: Rows | None = None


@runtime_checkable
class Partition(Protocol):
    """Distributes the training rows among clients."""

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        """The rows of each client; no row belongs to two clients."""
        ...


def class_counts(y: Rows, rows: Sequence[Rows], classes: int) -> list[list[int]]:
    """n_{k,c}: the number of rows of class c that client k holds, from the class of every row.

    ```python
    y, rng = shard.examples.y.numpy(), fedadb.Stream(seed=0).numpy()
    rows = fedadb.Iid().rows(fedadb.Labels(y), clients=4, rng=rng)
    fedadb.class_counts(y, rows, classes=4)
    ```
    """
    return [np.bincount(y[r], minlength=classes).tolist() for r in rows]


def distribute(pools: Sequence[Rows], receives: Rows, rng: np.random.Generator) -> list[Rows]:
    """Cut each pool of rows evenly among the clients that receive it, and shuffle their rows.

    `receives` is clients × pools, 1 where the client receives a part of the pool.
    """
    parts: list[list[Rows]] = [[] for _ in receives]
    for pool, receivers in zip(pools, map(np.flatnonzero, receives.T), strict=True):
        for k, part in zip(receivers, np.array_split(pool, len(receivers)), strict=True):
            parts[k].append(part)
    return [rng.permutation(np.concatenate(part)) for part in parts]
