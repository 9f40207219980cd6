"""What each algorithm's round costs beside FedAvg's.

    python benchmarks/algorithm_cost.py

The same three rounds of 100 clients of which 5 take part, LeNet (OrganAMNIST if it is on this
machine, else random images of its size): all algorithms in turn, several times over, and of each
round the best time.
"""

import tempfile
from pathlib import Path

import numpy as np

from fedadb.algorithms import ALGORITHMS
from fedadb.datasets import SOURCES
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run

ROUNDS, TURNS = 3, 3


def random_images(folder: Path) -> str:
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(40_000, 28, 28), dtype=np.uint8)
    np.savez(folder / "random.npz", x=x, y=np.arange(40_000) % 11)
    return f"npz:{folder / 'random.npz'}"


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        dataset = "organamnist" if SOURCES["organamnist"].here() else random_images(folder)
        best = {name: [float("inf")] * ROUNDS for name in ALGORITHMS}
        for turn in range(TURNS):
            for name in ALGORITHMS:
                table = {"dataset": dataset, "rounds": ROUNDS, "algorithm": name}
                history = run(Experiment.read(table), folder / f"{name}-{turn}")
                seconds = [record["seconds"] for record in history.rounds]
                best[name] = [min(pair) for pair in zip(best[name], seconds, strict=True)]
        plain = sum(best["fedavg"])
        for name, seconds in best.items():
            round_ = sum(seconds) / ROUNDS
            print(f"{name:10} {round_:5.2f} s a round, {sum(seconds) / plain:4.2f} of FedAvg's")


if __name__ == "__main__":
    main()
