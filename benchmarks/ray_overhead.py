"""What a round costs on Ray's actors beside worker processes: the same clients, the same bits.

    python benchmarks/ray_overhead.py

Prints milliseconds a round, best of several interleaved repeats, two workers of each kind, four
clients of a round. With clients of one image a round is little but its messages; those of 640 are
of an ordinary size. Needs `pip install 'fedadb[ray]'`.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.cluster.cohort import RayCohort
from fedadb.cluster.connection import connected
from fedadb.core.algorithm import Round, Weights
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.model import Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import Learner
from fedadb.engine.pool import Pool
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18

REPEATS = 20
WORKERS = 2
CLIENTS = 4
PLAN = LocalPlan(epochs=1, batch_size=64, lr=0.01)
SETTINGS: list[tuple[Any, int]] = [(LeNet(), 1), (LeNet(), 640), (ResNet18(), 1)]


def made(architecture: Any, rows: int) -> tuple[Model, list[Shard]]:
    rng = torch.Generator().manual_seed(0)
    shape, n = (3, 32, 32), CLIENTS * rows
    x = torch.randint(256, (n, *shape), generator=rng, dtype=torch.uint8)
    examples = Examples(x, torch.randint(10, (n,), generator=rng))
    transform = Transform(mean=(0.5,) * 3, std=(0.5,) * 3)
    f = assemble(architecture.body(shape), FedAvg().heads, transform.domain(shape), 10, Stream(0))
    return f, [Shard(examples, part, 10, transform) for part in torch.split(torch.arange(n), rows)]


@contextmanager
def both(f: Model, shards: list[Shard]) -> Iterator[dict[str, Any]]:
    learner = Learner(FedAvg(), f, PLAN)
    exam = TestSet(f, shards[0].examples, shards[0].transform, batch_size=64)
    with (
        closing(Pool(learner, shards, Stream(0), WORKERS, exam)) as pool,
        closing(RayCohort(learner, shards, Stream(0), WORKERS)) as actors,
    ):
        yield {"processes": pool, "ray": actors}


def main() -> None:
    torch.set_num_threads(1)
    with connected(None, WORKERS):
        for architecture, rows in SETTINGS:
            f, shards = made(architecture, rows)
            sent, clients = Weights(f.weights()), range(CLIENTS)
            times: dict[str, list[float]] = {}
            with both(f, shards) as cohorts:
                for t in range(1, REPEATS + 2):
                    for name, cohort in cohorts.items():
                        began = time.perf_counter()
                        cohort(sent, clients, Round(t, REPEATS + 1, CLIENTS, CLIENTS * rows))
                        times.setdefault(name, []).append(time.perf_counter() - began)
            millions = sent.w.flat.numel() / 1e6
            title = f"{type(architecture).__name__}, {millions:.1f} M weights, {rows} images"
            for name, seconds in times.items():  # the first has the workers' start in it
                print(
                    f"{title:36} {name:10} {1000 * min(seconds[1:]):8.1f} ms a round, "
                    f"{seconds[0]:.1f} s the first"
                )


if __name__ == "__main__":
    main()
