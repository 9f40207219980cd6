"""The ways to spread rows over clients, by name. Every row goes to exactly one client."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedadb.partition.dirichlet import Dirichlet
from fedadb.partition.iid import Iid


@runtime_checkable
class Partition(Protocol):
    """What gives each row to one client."""

    def rows(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[NDArray[np.int64]]: ...


PARTITIONS: dict[str, type[Partition]] = {"dirichlet": Dirichlet, "iid": Iid}
