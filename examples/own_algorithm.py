"""Your own algorithm in one file: FedAvg with momentum on the server.

    python examples/own_algorithm.py

In a TOML file beside this one it goes by `name = "own_algorithm:FedAvgM"`.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from annotated_types import Ge, Lt

import fedadb


class Server(NamedTuple):
    w: fedadb.Vector
    m: fedadb.Vector  # what the rounds changed, the older the fainter


@dataclass(frozen=True)
class FedAvgM(fedadb.Algorithm[Server, fedadb.Weights]):
    """Hsu et al., "Measuring the Effects of Non-Identical Data Distribution", 2019."""

    beta: Annotated[float, Ge(0), Lt(1)] = 0.7  # momentum; bounds are checked in TOML files too

    def init(self, w: fedadb.Vector) -> Server:
        return Server(w, w.zeros())

    def broadcast(self, s: Server, f: fedadb.Model, rng: fedadb.Stream) -> fedadb.Weights:
        return fedadb.Weights(s.w)

    def aggregate(self, s: Server, replies: Sequence[fedadb.Reply], round: fedadb.Round) -> Server:
        m = self.beta * s.m + (fedadb.average(replies) - s.w)
        return Server(s.w + m, m)


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
