"""A user's own algorithms, named `tests.report.own_algorithms:FedOwn` in experiments."""

from fedadb.algorithms.fedavg import FedAvg as RegisteredFedAvg


class FedOwn(RegisteredFedAvg):
    pass


class FedAvg(RegisteredFedAvg):
    """Has the name of a registered algorithm."""
