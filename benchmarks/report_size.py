"""The time that a report of many runs takes, and the size of its page.

    python -m benchmarks.report_size

Records are synthetic: 66 runs (11 methods, 2 settings, 3 seeds) of 300 rounds and 10 classes.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import tomli_w

from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.exports import PAPER
from fedadb.report.comparison import arrange
from fedadb.report.output import write_report
from fedadb.report.recorded_runs import collect_runs

ROUNDS, CLASSES, CLIENTS = 300, 10, 100


def make_run(parent: Path, name: str, scenario: str, seed: int, rng: np.random.Generator) -> None:
    table = {"dataset": "organamnist", "algorithm": name, "seed": seed, "rounds": ROUNDS}
    e = Experiment.read({**table, "federation": {"scenario": scenario}})
    directory = parent / run_name(e)
    directory.mkdir()
    (directory / "experiment.toml").write_text(tomli_w.dumps(e.table()))
    counts = rng.integers(0, 60, (CLIENTS, CLASSES)).tolist()
    partition = {"classes": [f"class {c}" for c in range(CLASSES)], "counts": counts}
    (directory / "partition.json").write_text(json.dumps(partition))
    rise = 0.8 * (1 - np.exp(-np.arange(1, ROUNDS + 1) / 60))
    by_class = (rise[:, None] + 0.1 * rng.standard_normal((ROUNDS, CLASSES))).clip(0, 1)
    with (directory / "rounds.jsonl").open("w") as file:
        for t, row in enumerate(by_class, start=1):
            record = {
                "round": t, "accuracy": row.mean(), "loss": 1 - row.mean(),
                "class_accuracy": row.tolist(), "clients": [1, 2, 3, 4, 5], "lr": 0.01,
                "seconds": 1.0, "tau": 1 - 1 / (t + 1), "beta": t / ROUNDS,
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder)
        for name in map(str.lower, PAPER):
            for scenario in ("cross-device", "cross-silo"):
                for seed in range(3):
                    make_run(parent, name, scenario, seed, rng)
        began = time.perf_counter()
        runs = collect_runs([parent]).runs
        page = write_report(arrange(runs), "66 runs", parent / "report")
        seconds = time.perf_counter() - began
        size = page.stat().st_size / 1e6
        print(f"{len(runs)} runs of {ROUNDS} rounds: {seconds:.1f} s, page {size:.1f} MB")


if __name__ == "__main__":
    main()
