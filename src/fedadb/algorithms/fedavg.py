"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, arXiv:1602.05629.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedadb.core.algorithm import Algorithm, Reply, Round, Weights, average
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector


@dataclass(frozen=True)
class FedAvg(Algorithm[Weights, Weights]):
    """Clients run SGD on their own loss; the server averages weights by number of rows."""

    def init(self, w: Vector) -> Weights:
        return Weights(w)

    def broadcast(self, s: Weights, f: Model, rng: Stream) -> Weights:
        return s

    def aggregate(self, s: Weights, replies: Sequence[Reply], round: Round) -> Weights:
        return Weights(average(replies))
