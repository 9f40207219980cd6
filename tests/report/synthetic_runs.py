"""Run directories with chosen accuracies, written without training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import tomli_w

from fedadb.algorithms.fedadb import FedADB
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.storage.searches import Search, Trial, search_file, write_search


def make_run(
    parent: Path,
    accuracy: Sequence[float],
    class_accuracy: Sequence[Sequence[float | None]] | None = None,
    classes: int = 2,
    **table: Any,
) -> Path:
    """Write a run below `parent`; without class accuracies, all classes have the run's."""
    e = Experiment.read({"rounds": len(accuracy), **table})
    directory = parent / run_name(e)
    directory.mkdir(parents=True)
    (directory / "experiment.toml").write_text(tomli_w.dumps(e.table()))
    by_class = class_accuracy or [[a] * classes for a in accuracy]
    records = [
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
    ]
    write_records(directory, records)
    names = [f"class <{c}>" for c in range(len(by_class[0]))]
    counts = [[3 * k + c for c in range(len(names))] for k in range(4)]
    (directory / "partition.json").write_text(json.dumps({"classes": names, "counts": counts}))
    (directory / "environment.json").write_text(json.dumps({"versions": {"fedadb": "0"}}))
    return directory


def read_records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def write_records(run: Path, records: Sequence[dict[str, Any]]) -> None:
    """Replace the run's records."""
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (run / "rounds.jsonl").write_text(lines)


def add_to_records(run: Path, **values: Any) -> None:
    """Add the same values to every record of the run."""
    write_records(run, [record | values for record in read_records(run)])


def add_validation(run: Path, accuracy: Sequence[float]) -> None:
    """Add the accuracy on validation data to each record of the run."""
    pairs = zip(read_records(run), accuracy, strict=True)
    write_records(run, [record | {"validation_accuracy": a} for record, a in pairs])


def make_search(
    parent: Path, scores: Mapping[float, float | None], rounds: int = 5, **table: Any
) -> Path:
    """Write a search for `local.lr`, one trial run per rate, and return the search's file.

    The test accuracy of each trial is its score. Without one, the trial was stopped after a round.
    """
    e = Experiment.read({"rounds": rounds, "validation": 0.1, **table}).table()
    trials = []
    for lr, score in scores.items():
        accuracy = [0.1 if score is None else score] * rounds
        settings = {**e, "local": {**e["local"], "lr": lr}}
        run = make_run(parent, accuracy, **settings)
        add_validation(run, accuracy)
        if score is None:
            keep_rounds(run, 1)
            trials.append(Trial(run.name, {"local.lr": lr}, "stopped", 1))
        else:
            trials.append(Trial(run.name, {"local.lr": lr}, "finished", rounds, score))
    name = e["algorithm"]["name"]
    space = {"local.lr": list(scores)}
    path = search_file(parent, f"{e['dataset']}-{name}-{e['seed']}")
    write_search(path, Search(name, e, space, "grid", "none", len(scores), trials, complete=True))
    return path


def keep_rounds(run: Path, rounds: int) -> None:
    """Delete the later records, as if the run were still going on."""
    write_records(run, read_records(run)[:rounds])


def add_personal(run: Path, accuracies: Mapping[str, Sequence[float | None]]) -> None:
    """Add personal models to the run's last round, with the accuracy of each client."""
    *before, last = read_records(run)
    known = {k: [a for a in of_clients if a is not None] for k, of_clients in accuracies.items()}
    statistics = {
        f"personal_{kind}_{name}": value
        for kind, values in known.items()
        for name, value in (("mean", fmean(values)), ("worst", min(values)), ("spread", 0.25))
    }
    write_records(run, [*before, last | statistics | {"personal_seconds": 1.5}])
    (run / f"personal-{last['round']:04}.json").write_text(json.dumps(accuracies))
