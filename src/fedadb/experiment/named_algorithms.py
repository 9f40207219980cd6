"""From the table of an algorithm to the algorithm, and back."""

from typing import Any

from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.algorithms.fedopt import FedOpt
from fedadb.core.algorithm import Algorithm
from fedadb.core.errors import BadInput
from fedadb.experiment import validation


def to_algorithm(given: Any) -> Any:
    """An algorithm by its name, by a table with a name, or already made.

    The settings of FedAdam and its like are those of its server optimiser.
    """
    if type(given) in SERVER_METHODS.values():
        raise BadInput(
            f"algorithm = {given!r}: is a server optimiser; give it as server.optimizer, or name "
            f"one of {', '.join(SERVER_METHODS)}"
        )
    if isinstance(given, FedOpt) and type(given.optimizer) not in SERVER_METHODS.values():
        raise BadInput(
            f"algorithm = {given!r}: has an optimiser of your own; give it as server.optimizer, "
            "with algorithm = 'fedavg'"
        )
    if isinstance(given, FedOpt):
        given = algorithm_table(given)  # so that its settings are checked
    made = validation.to_named(ALGORITHMS | SERVER_METHODS, given, "algorithm")
    return FedOpt(made) if type(made) in SERVER_METHODS.values() else made


def algorithm_table(algorithm: Algorithm[Any, Any, Any, Any]) -> dict[str, Any]:
    """The table from which `to_algorithm` makes an equal algorithm."""
    if isinstance(algorithm, FedOpt):
        return validation.to_named_table(SERVER_METHODS, algorithm.optimizer)
    return validation.to_named_table(ALGORITHMS, algorithm)
