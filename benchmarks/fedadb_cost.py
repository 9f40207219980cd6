"""What FedADB costs: its global branch with one anchor for its copies, and anchor generation.

    python benchmarks/fedadb_cost.py

1. The global branch of a client with 3 of 10 classes, LeNet, batch 128: one weighted anchor a
   missing class against a row for every copy, interleaved, best of several.
2. The share of anchor generation, and of everything else, in rounds of 100 clients of which 5 take
   part (OrganAMNIST if it is on this machine, else random images of its size).
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
import torch

from fedadb.algorithms.fedadb import Anchors, FedADB, Mixed
from fedadb.core.algorithm import Context, Round, Weights
from fedadb.core.data import Batch, Examples, LocalPlan, Shard
from fedadb.core.model import Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.datasets import SOURCES
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.models.lenet import LeNet

ROUNDS, TURNS = 12, 3


@dataclass(frozen=True)
class Plain(FedADB):
    """A row for every copy of an anchor, also where that is not needed."""

    def mix(self, f: Model, real: Batch, anchors: Anchors, copies: torch.Tensor) -> Mixed:
        which = torch.arange(len(copies)).repeat_interleave(copies)
        x, y = torch.cat([real.x, anchors.x[which]]), torch.cat([real.y, anchors.c[which]])
        return Mixed(x, y, torch.full((len(y),), 1 / len(y)), torch.arange(len(y)) >= len(real.y))


def branch() -> None:
    rng = torch.Generator().manual_seed(0)
    transform = Transform(mean=(0.5,), std=(0.5,))
    x = torch.randint(256, (640, 1, 28, 28), generator=rng, dtype=torch.uint8)
    data = Shard(Examples(x, torch.arange(640) % 3), torch.arange(640), 10, transform)
    domain = transform.domain((1, 28, 28))
    f = assemble(LeNet().body((1, 28, 28)), FedADB().heads, domain, 10, Stream(0))
    s, plan = Weights(f.weights()), LocalPlan()
    methods = {"one weighted anchor": FedADB(calibrate=False), "every copy": Plain(calibrate=False)}
    sent = FedADB(steps=1).broadcast(s, f, Stream(0))
    ctx = Context(sent, (), data.counts, Round(1, 2, 1, 40))
    best = dict.fromkeys(methods, float("inf"))
    for _ in range(15):
        for name, method in methods.items():
            ready = list(method.batches(f, sent, data, plan, Stream(0)))
            began = time.perf_counter()
            for batch in ready:
                method.gradient(f, s.w, batch, ctx)
            best[name] = min(best[name], (time.perf_counter() - began) / len(ready))
    for name, seconds in best.items():
        print(f"global branch, {name:20} {1000 * seconds:6.2f} ms a step")
    print(f"ratio {best['one weighted anchor'] / best['every copy']:.3f}")


def generated(path: Path) -> str:
    """Random images, as many as OrganAMNIST has."""
    rng = np.random.default_rng(0)
    train, test = (rng.integers(256, size=(n, 28, 28), dtype=np.uint8) for n in (41_052, 17_778))
    labels = np.arange(len(train)) % 11
    np.savez(path, x_train=train, y_train=labels, x_test=test, y_test=labels[: len(test)])
    return f"npz:{path}"


def rounds() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = SOURCES["organamnist"].here()
        dataset = "organamnist" if here else generated(Path(folder) / "random.npz")
        took: dict[str, list[float]] = {"fedavg": [], "fedadb": []}
        for turn in range(TURNS):
            for name, seconds in took.items():
                table = {"dataset": dataset, "rounds": ROUNDS, "algorithm": name}
                records = run(Experiment.read(table), Path(folder) / f"{name}-{turn}").rounds
                # The first covers the start; as evaluation lags behind, the last is short.
                seconds.append(fmean(record["seconds"] for record in records[1:-1]))
                anchors = fmean(record.get("cag_seconds", 0) for record in records[1:-1])
                print(f"turn {turn + 1} {name}: {seconds[-1]:.3f} s a round; anchors {anchors:.3f}")
        ratios = [adb / avg for avg, adb in zip(took["fedavg"], took["fedadb"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"FedADB's round is {median(ratios):.2f} ({spread}) of FedAvg's")


if __name__ == "__main__":
    torch.set_num_threads(1)
    branch()
    rounds()
