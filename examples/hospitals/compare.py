"""Compare the common model with one that each hospital trains alone, for as many rounds."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import fedadb
from fedadb import datasets
from fedadb.core.data import DataSpec
from fedadb.datasets.own import load_own
from fedadb.experiment.build import build_model

BATCH_SIZE = 128  # of evaluation


def train_alone(
    e: fedadb.Experiment, spec: DataSpec, train: fedadb.Examples
) -> tuple[fedadb.Model, fedadb.Vector]:
    """The model and its weights after training on one hospital's images: FedAvg of one client."""
    algorithm, rng, classes = fedadb.FedAvg(), fedadb.Stream(e.seed), len(spec.classes)
    f = build_model(e.model_copy(update={"algorithm": algorithm}), spec)
    shard = fedadb.Shard(train, torch.arange(len(train.y)), classes, spec.transform)
    learner = fedadb.Learner(algorithm, f, e.local)
    cohort = fedadb.OneByOne(learner, [shard], rng)
    before = fedadb.Round(t=0, total=e.rounds, clients=1, examples=len(train.y))
    w = f.weights()
    start = fedadb.Snapshot(before, algorithm.init(w))
    for now in fedadb.federate(learner, cohort, choose=lambda t: [0], rng=rng, start=start):
        w = algorithm.deployed(now.server)
    return f, w


def show(accuracy: float | None) -> str:
    """The accuracy; None if the site was not connected."""
    return "away" if accuracy is None else f"{accuracy:.3f}"


def show_site(record: dict[str, Any], k: int) -> str:
    """The accuracy on the images of hospital k, which secure aggregation hides."""
    accuracies = record["domain_accuracy"]
    return show(accuracies[k]) if len(accuracies) > 1 else "not known"


def main(directory: Path) -> None:
    e = fedadb.Experiment.read(tomllib.loads((directory / "experiment.toml").read_text()))
    common = datasets.load(e.dataset)
    rounds = [json.loads(line) for line in (directory / "run" / "rounds.jsonl").open()]
    first, last = rounds[0], rounds[-1]
    table = Table("", "a model of its own", "round 1", f"round {e.rounds}", title="accuracy on")
    on_all = []
    for k in range(3):
        data = f"npz:{directory / f'hospital-{k}' / 'images.npz'}"
        train, test = load_own(data, common.spec)
        f, w = train_alone(e, common.spec, train)
        own = fedadb.evaluate(f, w, test, common.transform, BATCH_SIZE).accuracy
        on_all.append(fedadb.evaluate(f, w, common.test, common.transform, BATCH_SIZE).accuracy)
        by_round = (show_site(record, k) for record in (first, last))
        table.add_row(f"the images of hospital-{k}", show(own), *by_round)
    if len(last["domain_accuracy"]) == 1:
        by_round = (show(record["domain_accuracy"][0]) for record in (first, last))
        table.add_row("the hospitals' images together", "", *by_round)
    table.add_row(
        "the images of all", ", ".join(map(show, on_all)), show(first["accuracy"]),
        show(last["accuracy"]),
    )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
