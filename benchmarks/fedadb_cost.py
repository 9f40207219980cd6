"""What FedADB costs: one weighted anchor instead of its copies, and anchor generation.

    python benchmarks/fedadb_cost.py

1. The global branch of a client with 3 of 10 classes, LeNet, batch 128: one weighted row per
   missing class against one row per copy of its anchor, interleaved, best of several.
2. Rounds of FedAvg, FedADB, and FedADB without its local branch, and the time of anchor generation
   in them: 100 clients, 5 per round, on OrganAMNIST if it is on this machine, otherwise on random
   images of its size.
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
import torch

from fedadb import datasets
from fedadb.algorithms.fedadb import Anchors, BalancedBatch, FedADB
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Batch, Examples, LocalPlan, Shard
from fedadb.core.model import Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Weights
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.kernels.selection import select_body
from fedadb.models.lenet import LeNet

ROUNDS, TURNS = 12, 3
SETTING = {"federation": {"scenario": "cross-device", "partition": {"alpha": 0.1}}}
METHODS = {
    "FedAvg": {"name": "fedavg"},
    "FedADB": {"name": "fedadb"},
    "FedADB without its local branch": {"name": "fedadb", "calibrate": False},
}


@dataclass(frozen=True)
class WithCopies(FedADB):
    """FedADB with one row per copy of an anchor, even for models that do not need it."""

    def mix(self, f: Model, real: Batch, anchors: Anchors, copies: torch.Tensor) -> BalancedBatch:
        which = torch.arange(len(copies)).repeat_interleave(copies)
        x, y = torch.cat([real.x, anchors.x[which]]), torch.cat([real.y, anchors.c[which]])
        weight = torch.full((len(y),), 1 / len(y))
        return BalancedBatch(x, y, weight, torch.arange(len(y)) >= len(real.y))


def measure_global_branch() -> None:
    rng = torch.Generator().manual_seed(0)
    transform = Transform(mean=(0.5,), std=(0.5,))
    x = torch.randint(256, (640, 1, 28, 28), generator=rng, dtype=torch.uint8)
    data = Shard(Examples(x, torch.arange(640) % 3), torch.arange(640), 10, transform)
    domain = transform.domain((1, 28, 28))
    body = LeNet().body(domain.shape)
    f = assemble(body, FedADB().heads, domain, 10, Stream(0))
    f = replace(f, fast_body=select_body(body, domain.shape))
    s, plan = Weights(f.weights()), LocalPlan()
    methods = {
        "one weighted anchor": FedADB(calibrate=False),
        "every copy": WithCopies(calibrate=False),
    }
    sent = FedADB(steps=1).broadcast(s, f, Stream(0))
    steps = torch.tensor(len(plan.sizes(len(data))))
    ctx = Context(sent, (), data.counts, Round(1, 2, 1, 40), plan, steps)
    best = dict.fromkeys(methods, float("inf"))
    for _ in range(15):
        for name, method in methods.items():
            batches = list(method.batches(f, data, ctx, Stream(0)))
            began = time.perf_counter()
            for batch in batches:
                method.gradient(f, s.w, batch, ctx)
            best[name] = min(best[name], (time.perf_counter() - began) / len(batches))
    for name, seconds in best.items():
        print(f"global branch, {name:20} {1000 * seconds:6.2f} ms per step")
    print(f"ratio {best['one weighted anchor'] / best['every copy']:.3f}")


def random_images(path: Path) -> str:
    """A dataset of random images, as many as OrganAMNIST has."""
    rng = np.random.default_rng(0)
    train, test = (rng.integers(256, size=(n, 28, 28), dtype=np.uint8) for n in (41_052, 17_778))
    labels = np.arange(len(train)) % 11
    np.savez(path, x_train=train, y_train=labels, x_test=test, y_test=labels[: len(test)])
    return f"npz:{path}"


def measure_rounds() -> None:
    with tempfile.TemporaryDirectory() as folder:
        present = datasets.present("organamnist")
        dataset = "organamnist" if present else random_images(Path(folder) / "random.npz")
        took: dict[str, list[list[float]]] = {name: [] for name in METHODS}
        for turn in range(TURNS):
            for name, turns in took.items():
                e = Experiment.read(
                    {**SETTING, "dataset": dataset, "rounds": ROUNDS, "algorithm": METHODS[name]}
                )
                records = run(e, Path(folder) / f"{name}-{turn}").rounds
                # The first round includes the start. Evaluation is one round behind, so the last
                # one is short.
                turns.append([record["seconds"] for record in records[1:-1]])
                anchors = fmean(record.get("cag_seconds", 0) for record in records[1:-1])
                print(
                    f"turn {turn + 1}, {name}: {fmean(turns[-1]):.3f} s per round, "
                    f"anchors {anchors:.3f} s"
                )
    # All train the same clients in the same rounds. On a shared machine, other work slows some.
    best = {name: sum(map(min, zip(*turns, strict=True))) for name, turns in took.items()}
    fedavgs = took.pop("FedAvg")
    for name, turns in took.items():
        ratios = [sum(one) / sum(fedavg) for fedavg, one in zip(fedavgs, turns, strict=True)]
        print(
            f"a round of {name} takes {median(ratios):.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) times as long as FedAvg's; by the best time of each round, "
            f"{best[name] / best['FedAvg']:.2f} times"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure_global_branch()
    measure_rounds()
