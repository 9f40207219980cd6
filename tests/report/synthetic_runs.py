"""Runs made up for tests of the report: directories as a run leaves them, without running."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedadb.algorithms.fedadb import FedADB
from fedadb.experiment.config import Experiment
from fedadb.experiment.directory import run_name


def make_run(
    place: Path,
    accuracy: Sequence[float],
    class_accuracy: Sequence[Sequence[float | None]] | None = None,
    **table: Any,
) -> Path:
    """A run below the place with these accuracies."""
    e = Experiment.read({"rounds": len(accuracy), **table})
    directory = place / run_name(e)
    directory.mkdir(parents=True)
    (directory / "experiment.toml").write_text(tomli_w.dumps(e.table()))
    by_class = class_accuracy or [[a, a] for a in accuracy]
    lines = [
        {
            "round": t,
            "accuracy": a,
            "loss": 1 - a,
            "class_accuracy": list(c),
            "clients": [0, 1],
            "lr": 0.01,
            "seconds": 0.5,
            **({"tau": 1 - 1 / t, "beta": t / 10} if isinstance(e.algorithm, FedADB) else {}),
        }
        for t, (a, c) in enumerate(zip(accuracy, by_class, strict=True), start=1)
    ]  # fmt: skip
    (directory / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    classes = [f"class <{c}>" for c in range(len(by_class[0]))]
    counts = [[3 * k + c for c in range(len(classes))] for k in range(4)]
    (directory / "partition.json").write_text(json.dumps({"classes": classes, "counts": counts}))
    (directory / "environment.json").write_text(json.dumps({"versions": {"fedadb": "0"}}))
    return directory
