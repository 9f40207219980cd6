"""The ways to spread rows over clients, by name. Every row goes to exactly one client."""

from fedadb.partition.dirichlet import Dirichlet
from fedadb.partition.iid import Iid

Partition = Dirichlet | Iid

PARTITIONS: dict[str, type[Partition]] = {"dirichlet": Dirichlet, "iid": Iid}
