"""The registry of algorithms: those that the package exports, by their names in lower case.

`fedadb/__init__.pyi` is the only list of them.
"""

from importlib import import_module
from typing import Any

from fedadb.algorithms.fedopt import METHODS
from fedadb.core.algorithm import Algorithm
from fedadb.core.server_optimizers import ServerOptimizer
from fedadb.exports import algorithm_names

ALGORITHMS: dict[str, type[Algorithm[Any, Any, Any, Any]]] = {
    name.lower(): getattr(import_module(f"fedadb.algorithms.{name.lower()}"), name)
    for name in algorithm_names()
}

# FedAvg with a server optimiser, whose settings are the method's.
SERVER_METHODS: dict[str, type[ServerOptimizer]] = {
    name.lower(): optimizer for name, optimizer in METHODS.items()
}
