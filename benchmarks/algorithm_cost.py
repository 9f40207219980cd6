"""The time of a round of each algorithm, relative to FedAvg.

    python benchmarks/algorithm_cost.py

Every algorithm trains the same three rounds: 100 clients, 5 per round, LeNet, on OrganAMNIST if it
is on this machine, otherwise on random images of its size. The algorithms take turns, several times
over; the best time of each round counts.

FedCOG generates inputs in all three rounds, by 10 of its 500 steps, which all take the same time.
"""

import tempfile
from pathlib import Path

import numpy as np

from fedadb import datasets
from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run

ROUNDS, TURNS = 3, 3
NAMES = (*ALGORITHMS, *SERVER_METHODS)
SETTING = {"federation": {"scenario": "cross-device", "partition": {"alpha": 0.1}}}
OPTIONS = {"fedcog": {"first_round": 1, "steps": 10}}


def random_images(folder: Path) -> str:
    """A dataset of random images of the size of OrganAMNIST's, in that folder."""
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(40_000, 28, 28), dtype=np.uint8)
    np.savez(folder / "random.npz", x=x, y=np.arange(40_000) % 11)
    return f"npz:{folder / 'random.npz'}"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dataset = "organamnist" if datasets.present("organamnist") else random_images(folder)
        best = {name: [float("inf")] * ROUNDS for name in NAMES}
        for turn in range(TURNS):
            for name in NAMES:
                algorithm = {"name": name, **OPTIONS.get(name, {})}
                table = {**SETTING, "dataset": dataset, "rounds": ROUNDS, "algorithm": algorithm}
                history = run(Experiment.read(table), folder / f"{name}-{turn}")
                seconds = [record["seconds"] for record in history.rounds]
                best[name] = [min(pair) for pair in zip(best[name], seconds, strict=True)]
        fedavg = sum(best["fedavg"])
        for name, seconds in best.items():
            print(
                f"{name:10} {sum(seconds) / ROUNDS:5.2f} s per round, "
                f"{sum(seconds) / fedavg:4.2f} times FedAvg"
            )


if __name__ == "__main__":
    main()
