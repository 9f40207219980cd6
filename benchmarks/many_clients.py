"""What clients that are not sampled cost: start and rounds of larger and larger federations.

    python benchmarks/many_clients.py

Every client holds 50 rows and 10 of them take part in a round, however many there are.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run

ROUNDS, SAMPLED, ROWS = 20, 10, 50


def main() -> None:
    rng = np.random.default_rng(0)
    for clients in (100, 1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            n = ROWS * clients
            x = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
            y = np.arange(n) % 10
            path = Path(folder) / "many.npz"
            np.savez(path, x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
            federation = {
                "clients": clients,
                "participation": SAMPLED / clients,
                "partition": "iid",
            }
            table = {"dataset": f"npz:{path}", "rounds": ROUNDS, "federation": federation}
            began = time.perf_counter()
            history = run(Experiment.read(table), Path(folder) / "run")
            seconds = [record["seconds"] for record in history.rounds]
            start = time.perf_counter() - began - sum(seconds)
            print(f"{clients:6} clients: start {start:5.2f} s, best round {min(seconds):.3f} s")


if __name__ == "__main__":
    main()
