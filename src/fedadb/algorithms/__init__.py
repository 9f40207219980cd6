"""The algorithms by name. One is known by being imported here."""

from typing import Any

from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm[Any, Any, Any]]] = {
    algorithm.__name__.lower(): algorithm for algorithm in (FedAvg, FedADB)
}
