"""The time of a round on Ray actors and on worker processes, with the same clients.

    python benchmarks/ray_overhead.py

Prints milliseconds per round: the best of several interleaved repetitions, with two workers of each
kind and four clients per round. With one image per client, a round consists of little but messages;
640 images are a client of ordinary size. Needs `pip install 'fedadb[ray]'`.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.cluster.cohort import RayCohort
from fedadb.cluster.connection import connected
from fedadb.core.algorithm import Round
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.model import Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Weights
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


def setup(architecture: Any, rows: int) -> tuple[Model, list[Shard]]:
    """A model, and clients with that many random images each."""
    rng = torch.Generator().manual_seed(0)
    shape, n = (3, 32, 32), CLIENTS * rows
    x = torch.randint(256, (n, *shape), generator=rng, dtype=torch.uint8)
    examples = Examples(x, torch.randint(10, (n,), generator=rng))
    transform = Transform(mean=(0.5,) * 3, std=(0.5,) * 3)
    f = assemble(architecture.body(shape), FedAvg().heads, transform.domain(shape), 10, Stream(0))
    return f, [Shard(examples, part, 10, transform) for part in torch.split(torch.arange(n), rows)]


@contextmanager
def cohorts_of_both_kinds(f: Model, shards: list[Shard]) -> Iterator[dict[str, Any]]:
    learner = Learner(FedAvg(), f, PLAN)
    test_set = TestSet(f, shards[0].examples, shards[0].transform, batch_size=64)
    with (
        closing(Pool(learner, shards, Stream(0), WORKERS, test_set)) as pool,
        closing(RayCohort(learner, shards, Stream(0), WORKERS)) as actors,
    ):
        yield {"processes": pool, "ray": actors}


def main() -> None:
    torch.set_num_threads(1)
    with connected(None, WORKERS):
        for architecture, rows in SETTINGS:
            f, shards = setup(architecture, rows)
            sent, clients = Weights(f.weights()), range(CLIENTS)
            times: dict[str, list[float]] = {}
            with cohorts_of_both_kinds(f, shards) as cohorts:
                for t in range(1, REPEATS + 2):
                    for name, cohort in cohorts.items():
                        began = time.perf_counter()
                        cohort(sent, clients, Round(t, REPEATS + 1, CLIENTS, CLIENTS * rows))
                        times.setdefault(name, []).append(time.perf_counter() - began)
            millions = sent.w.flat.numel() / 1e6
            title = f"{type(architecture).__name__}, {millions:.1f} M weights, {rows} images"
            for name, seconds in times.items():  # the first round includes the start of the workers
                print(
                    f"{title:36} {name:10} {1000 * min(seconds[1:]):8.1f} ms per round, "
                    f"first round {seconds[0]:.1f} s"
                )


if __name__ == "__main__":
    main()
