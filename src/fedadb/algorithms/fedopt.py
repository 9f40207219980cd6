"""FedOpt: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295.

FedAvgM: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification", 2019, arXiv:1909.06335.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from fedadb.core import server_optimizers
from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.replies import Reply, average
from fedadb.core.server_optimizers import ServerOptimizer
from fedadb.core.vector import Vector
from fedadb.exports import FEDOPT

O = TypeVar("O")  # noqa: E741  # what the optimiser accumulates


class FedOptState(NamedTuple, Generic[O]):
    w: Vector
    optimizer: O


@dataclass(frozen=True)
class FedOpt(Algorithm[FedOptState[Any]]):
    """FedAvg whose server steps towards the mean by an optimiser.

    Experiments name it by the optimiser, such as `algorithm = {name = "fedadam", lr = 0.003}`.
    """

    optimizer: ServerOptimizer

    own_server_step = True

    @property
    def name(self) -> str:
        return {kind: name for name, kind in METHODS.items()}.get(type(self.optimizer), "FedOpt")

    def init(self, w: Vector) -> FedOptState[Any]:
        return FedOptState(w, self.optimizer.init(w))

    def aggregate(
        self, s: FedOptState[Any], replies: Iterable[Reply], round: Round
    ) -> FedOptState[Any]:
        return FedOptState(*self.optimizer.step(s.w, average(replies), s.optimizer, round))


# The optimiser behind each name; its settings are the method's.
METHODS: dict[str, type[ServerOptimizer]] = {
    name: getattr(server_optimizers, optimizer) for name, optimizer in FEDOPT.items()
}
