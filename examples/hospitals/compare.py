"""What each hospital has of federating: its own model, trained as long, beside the common one."""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from fedadb import datasets
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.stream import Stream
from fedadb.core.task import Task
from fedadb.deploy.site_data import load
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import evaluate
from fedadb.engine.federate import Snapshot, federate
from fedadb.engine.local import Learner
from fedadb.experiment import config
from fedadb.experiment.build import model


def shown(accuracy: float | None) -> str:
    return "away" if accuracy is None else f"{accuracy:.3f}"


def main(place: Path) -> None:
    torch.set_num_threads(1)
    e = config.Experiment.read(config.load_toml(place / "experiment.toml"))
    alone = e.model_copy(update={"algorithm": FedAvg()})  # of one site: plain SGD
    everybody = datasets.load(e.dataset)
    task = Task.of(everybody)
    domain = task.transform.domain(task.shape)
    rounds = [json.loads(line) for line in (place / "run" / "rounds.jsonl").open()]
    before, after = rounds[0], rounds[-1]
    table = Table("", "its own model", "round 1", f"round {e.rounds}", title="accuracy on")
    on_all = []
    for k in range(3):
        train, test = load(f"npz:{place / f'hospital-{k}' / 'images.npz'}", task)
        f = model(alone, domain, len(task.classes), torch.device("cpu"))
        shard = Shard(train, torch.arange(len(train.y)), len(task.classes), task.transform)
        learner, rng = Learner(alone.algorithm, f, alone.local), Stream(alone.seed)
        start = Snapshot(
            Round(0, e.rounds, 1, len(train.y), e.local.lr_decay), FedAvg().init(f.weights())
        )
        cohort = OneByOne(learner, [shard], rng)
        for now in federate(FedAvg(), f, cohort, choose=lambda t: [0], rng=rng, start=start):
            w = now.server.w
        own = evaluate(f, w, test, task.transform, 128).accuracy
        on_all.append(evaluate(f, w, everybody.test, task.transform, 128).accuracy)
        table.add_row(
            f"the images of hospital-{k}",
            f"{own:.3f}",
            *(shown(line["domain_accuracy"][k]) for line in (before, after)),
        )
    table.add_row(
        "the images of all",
        " / ".join(f"{a:.3f}" for a in on_all),
        f"{before['accuracy']:.3f}",
        f"{after['accuracy']:.3f}",
    )
    Console().print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
