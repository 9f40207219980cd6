"""The overhead of the engine over a bare PyTorch loop: same model, same batches, same steps.

    python benchmarks/engine_overhead.py

Prints the engine's time divided by that of the bare loop: the best of several interleaved
repetitions, in one thread, with LeNet at batch 128.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Batch, Examples, LocalPlan, Shard
from fedadb.core.model import Classifier, Model, assemble
from fedadb.core.optimizers import SGD
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Weights
from fedadb.engine.local import Learner
from fedadb.models.lenet import LeNet

REPEATS = 15
MOMENTUM = 0.9
PLAN = LocalPlan(epochs=5, batch_size=128, lr=0.01, optimizer=SGD(MOMENTUM))


@dataclass
class Setting:
    """A client with 640 images; both loops get the same batches, made in advance."""

    shard: Shard = field(init=False)
    f: Model = field(init=False)
    batches: list[Batch] = field(init=False)

    def __post_init__(self) -> None:
        rng = torch.Generator().manual_seed(0)
        x = torch.randint(256, (640, 1, 28, 28), generator=rng, dtype=torch.uint8)
        y = torch.randint(10, (640,), generator=rng)
        transform = Transform(mean=(0.5,), std=(0.5,))
        self.shard = Shard(Examples(x, y), torch.arange(640), 10, transform)
        self.f = assemble(
            LeNet().body((1, 28, 28)), FedAvg().heads, transform.domain((1, 28, 28)), 10, Stream(0)
        )
        self.batches = list(PLAN.batches(self.shard, Stream(0)))


def time_bare_loop(setting: Setting) -> float:
    """Seconds for torch.optim.SGD on the module, over the batches."""
    module: Classifier = setting.f.module
    optimiser = torch.optim.SGD(
        module.parameters(), lr=PLAN.lr, momentum=MOMENTUM, weight_decay=PLAN.weight_decay
    )
    began = time.perf_counter()
    for x, y in setting.batches:
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(module(x, "head").logits, y))
        optimiser.step()
    return time.perf_counter() - began


@dataclass(frozen=True)
class FedAvgOnBatches(FedAvg):
    """FedAvg on batches that were made before the measurement."""

    ready: tuple[Batch, ...] = ()

    def batches(self, f: Model, data: Shard, ctx: Context[Weights], rng: Stream) -> Iterator[Batch]:
        return iter(self.ready)


def main() -> None:
    torch.set_num_threads(1)
    setting = Setting()
    w = setting.f.weights()
    learner = Learner(FedAvgOnBatches(tuple(setting.batches)), setting.f, PLAN)
    full = Learner(FedAvg(), setting.f, PLAN)

    def time_engine(learner: Learner[Weights, Weights]) -> float:
        began = time.perf_counter()
        learner.train(setting.shard, Weights(w), None, Round(1, 1, 1, 40), Stream(0))
        return time.perf_counter() - began

    times: dict[str, list[float]] = {"bare": [], "engine": [], "engine with its own batches": []}
    for _ in range(REPEATS):
        times["bare"].append(time_bare_loop(setting))
        times["engine"].append(time_engine(learner))
        times["engine with its own batches"].append(time_engine(full))
    steps = len(setting.batches)
    floor = min(times["bare"])
    for name, seconds in times.items():
        best = min(seconds)
        print(f"{name:30} {1000 * best / steps:6.2f} ms per step   {best / floor:.3f} times bare")


if __name__ == "__main__":
    main()
