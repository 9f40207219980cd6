"""Where a round's time goes: each part of it on its own, one thread.

    python -m benchmarks.breakdown

The work is that of `benchmarks.speed`: LeNet, 5 clients of 600 rows, 5 epochs, batch 128, and an
evaluation on 10 000 rows. A part's figure is the best of several, times how often a round does it.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.speed.work import Work
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context, Reply, Round, Weights
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.model import assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.engine import checkpoint
from fedadb.engine.evaluate import TestSet
from fedadb.engine.federate import Snapshot
from fedadb.engine.local import Learner
from fedadb.engine.process import keep_memory
from fedadb.models.lenet import LeNet

REPEATS = 20


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    torch.set_num_threads(1)
    keep_memory()
    work, transform = Work(), Transform(mean=(0.5,), std=(0.5,))
    x, y, test_x, test_y = (torch.as_tensor(part) for part in work.data())
    shard = Shard(Examples(x, y), torch.arange(work.rows), 10, transform)
    domain, algorithm = transform.domain((1, 28, 28)), FedAvg()
    f = assemble(LeNet().body((1, 28, 28)), algorithm.heads, domain, 10, Stream(0))
    plan = LocalPlan(work.epochs, work.batch, work.lr)
    learner, exam = Learner(algorithm, f, plan), TestSet(f, Examples(test_x, test_y), transform, 128)
    w, round = f.weights(), Round(1, 1, work.clients, len(y))
    batches = list(plan.batches(shard, Stream(0)))
    ctx = Context(Weights(w), (), shard.counts, round)
    g, velocity, moving = algorithm.gradient(f, w, batches[0], ctx), w.zeros(), w.clone()
    replies = [Reply(w, torch.tensor(work.rows))] * work.sampled
    images = [test_x[i : i + 128] for i in range(0, work.test, 128)]
    steps = work.sampled * len(batches)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        after = Snapshot(round, Weights(w))
        saving = best(lambda: checkpoint.save(path, after, {}, ""))
    parts = {
        "gradients": work.sampled
        * best(lambda: [algorithm.gradient(f, w, batch, ctx) for batch in batches]),
        "batches gathered and normalised": work.sampled
        * best(lambda: list(plan.batches(shard, Stream(0)))),
        "SGD updates": steps * best(lambda: learner.step(moving, g, velocity, round)),
        "evaluation: images normalised": len(images) * best(lambda: transform.normalise(images[0])),
        "evaluation: the rest": len(images)
        * (best(lambda: exam.batch(w, 0)) - best(lambda: transform.normalise(images[0]))),
        "the server's mean": best(lambda: algorithm.aggregate(Weights(w), replies, round)),
        "the checkpoint (beside training)": saving,
    }
    for name, seconds in parts.items():
        share = seconds / sum(parts.values())
        print(f"{name:34} {1000 * seconds:8.1f} ms  {share:6.1%}")
    print(f"{'all, in one process':34} {1000 * sum(parts.values()):8.1f} ms")


if __name__ == "__main__":
    main()
