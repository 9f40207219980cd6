"""What a partition is."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class Labels(NamedTuple):
    """What is known of the training rows, a number for each."""

    y: Rows  # its class
    domain: Rows | None = None  # its origin, in data of several


@runtime_checkable
class Partition(Protocol):
    """Who holds which rows."""

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        """The rows of each client; no row has two."""
        ...


def deal(pools: Sequence[Rows], holders: Sequence[Rows], clients: int) -> list[Rows]:
    """Cut each pool evenly among its holders; what each client receives of all of them."""
    hands: list[list[Rows]] = [[] for _ in range(clients)]
    for pool, held_by in zip(pools, holders, strict=True):
        for k, part in zip(held_by, np.array_split(pool, len(held_by)), strict=True):
            hands[k].append(part)
    return [np.concatenate(hand) for hand in hands]
