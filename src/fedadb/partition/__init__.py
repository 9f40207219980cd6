"""The partitions by name: ways to distribute training rows among clients."""

from fedadb.partition.dirichlet import Dirichlet
from fedadb.partition.domains import ByDomain
from fedadb.partition.file import File
from fedadb.partition.iid import Iid
from fedadb.partition.protocol import Labels, Partition, Rows
from fedadb.partition.reference import ReferenceDirichlet
from fedadb.partition.shards import Shards

PARTITIONS: dict[str, type[Partition]] = {
    "dirichlet": Dirichlet,
    "reference": ReferenceDirichlet,
    "iid": Iid,
    "shards": Shards,
    "domains": ByDomain,
    "file": File,
}

__all__ = ["PARTITIONS", "Labels", "Partition", "Rows"]
