"""Your own algorithm in one file: FedAvg with momentum on the server.

    python examples/own_algorithm.py

A TOML file in the same directory can use it: `algorithm = {name = "own_algorithm:FedAvgM"}`.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from annotated_types import Ge, Lt

import fedadb


class FedAvgMState(NamedTuple):
    w: fedadb.Vector
    m: fedadb.Vector  # momentum: a decaying sum of the rounds' changes


@dataclass(frozen=True)
class FedAvgM(fedadb.Algorithm[FedAvgMState]):
    """Hsu et al., "Measuring the Effects of Non-Identical Data Distribution", 2019."""

    beta: Annotated[float, Ge(0), Lt(1)] = 0.7  # of the momentum; TOML files are checked too

    def init(self, w: fedadb.Vector) -> FedAvgMState:
        return FedAvgMState(w, w.zeros())

    def aggregate(
        self, s: FedAvgMState, replies: Iterable[fedadb.Reply], round: fedadb.Round
    ) -> FedAvgMState:
        m = self.beta * s.m + (fedadb.average(replies) - s.w)
        return FedAvgMState(s.w + m, m)


def main() -> float:
    experiment = fedadb.Experiment(
        dataset="digits",
        rounds=12,
        federation=fedadb.Federation(clients=10, participation=0.5),
        algorithm=FedAvgM(beta=0.5),
    )
    with tempfile.TemporaryDirectory() as directory:
        history = fedadb.run(experiment, out=directory)
    print(f"best round: {max(history.accuracy):.3f}")
    return max(history.accuracy)


if __name__ == "__main__":
    main()
