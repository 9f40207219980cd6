"""Two algorithms of your own: one changes the clients' loss, the other the server's step.

    python examples/own_algorithm.py

A TOML file in the same directory can use them: `algorithm = {name = "own_algorithm:FedAvgM"}`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch.nn.functional as F
from annotated_types import Ge, Lt
from torch import Tensor

import fedadb


@dataclass(frozen=True)
class BalancedSoftmax(fedadb.Algorithm):
    """Clients add the logarithm of their class frequencies to the logits in training."""

    # Strength. The bounds are checked in TOML files too; `fedadb tune` searches from 0.25 to 2.
    tau: Annotated[float, Ge(0), fedadb.Searched(0.25, 2)] = 1.0

    def loss(
        self, f: fedadb.Model, w: fedadb.Vector, batch: fedadb.Batch, ctx: fedadb.Context[Any]
    ) -> Tensor:
        frequency = (ctx.counts + 1) / (ctx.counts + 1).sum()  # + 1: no class has none
        return F.cross_entropy(f(w, batch.x).logits + self.tau * frequency.log(), batch.y)


class FedAvgMState(NamedTuple):
    w: fedadb.Vector
    m: fedadb.Vector  # momentum: a decaying sum of the rounds' changes


@dataclass(frozen=True)
class FedAvgM(fedadb.Algorithm[FedAvgMState]):
    """Hsu et al., "Measuring the Effects of Non-Identical Data Distribution", 2019."""

    beta: Annotated[float, Ge(0), Lt(1)] = 0.7  # of the momentum
    own_server_step = True  # so it takes no server.optimizer

    def init(self, w: fedadb.Vector) -> FedAvgMState:
        return FedAvgMState(w, w.zeros())

    def aggregate(
        self, s: FedAvgMState, replies: Iterable[fedadb.Reply], round: fedadb.Round
    ) -> FedAvgMState:
        m = self.beta * s.m + (fedadb.average(replies) - s.w)
        return FedAvgMState(s.w + m, m)


def main() -> float:
    federation = fedadb.Federation(clients=10, participation=0.5)
    best = []
    for algorithm in (BalancedSoftmax(), FedAvgM(beta=0.5)):
        history = fedadb.simulate(algorithm, "mlp", "digits", rounds=6, federation=federation)
        best.append(max(history.accuracy))
        print(f"{type(algorithm).__name__}: best round {best[-1]:.3f}")
    return min(best)


if __name__ == "__main__":
    main()
