"""Where the time of a round goes: each part measured on its own, in one thread.

    python -m benchmarks.breakdown

The workload is that of `benchmarks.speed`: LeNet, 5 clients of 600 rows, 5 epochs, batch 128, and
an evaluation on 10 000 rows. The time of a part is its best of several repetitions, times the
number of repetitions in a round.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.speed.workload import Workload
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.model import assemble
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Weights
from fedadb.engine.checkpoint import save_checkpoint
from fedadb.engine.evaluate import TestSet
from fedadb.engine.federate import Snapshot
from fedadb.engine.process import keep_freed_memory
from fedadb.kernels.selection import select_body
from fedadb.models.lenet import LeNet

REPEATS = 20


def best(call: Callable[[], object]) -> float:
    """The shortest time of several calls."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    work, transform = Workload(), Transform(mean=(0.5,), std=(0.5,))
    x, y, test_x, test_y = (torch.as_tensor(part) for part in work.data())
    shard = Shard(Examples(x, y), torch.arange(work.rows), 10, transform)
    domain, algorithm = transform.domain((1, 28, 28)), FedAvg()
    body = LeNet().body(domain.shape)
    f = assemble(body, algorithm.heads, domain, 10, Stream(0))
    f = replace(f, fast_body=select_body(body, domain.shape))
    plan = LocalPlan(work.epochs, work.batch, work.lr)
    test_set = TestSet(f, Examples(test_x, test_y), transform, 128)
    w, round = f.weights(), Round(1, 1, work.clients, len(y))
    batches = list(plan.batches(shard, Stream(0)))
    ctx = Context(Weights(w), (), shard.counts, round, plan, torch.tensor(len(batches)))
    g, moving = algorithm.gradient(f, w, batches[0], ctx), w.clone()
    state = plan.optimizer.start(moving)
    replies = [Reply(Weights(w), torch.tensor(work.rows))] * work.sampled
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        after = Snapshot(round, Weights(w))
        save = best(lambda: save_checkpoint(path, after, {}, ""))
    draw = best(lambda: list(plan.batches(shard, Stream(0))))
    gradients = best(lambda: [algorithm.gradient(f, w, batch, ctx) for batch in batches])
    step = best(lambda: plan.optimizer.step(moving, g, state, plan.lr, plan.weight_decay))
    normalise = best(lambda: transform.normalise(test_x[:128]))
    evaluate = best(lambda: test_set.evaluate_batch(w, 0))
    parts = {
        "gradients": work.sampled * gradients,
        "gathering and normalising batches": work.sampled * draw,
        "SGD updates": work.sampled * len(batches) * step,
        "evaluation: normalising images": len(test_set) * normalise,
        "evaluation: the rest": len(test_set) * (evaluate - normalise),
        "server's mean": best(lambda: algorithm.aggregate(Weights(w), replies, round)),
        "checkpoint (written during training)": save,
    }
    for name, seconds in parts.items():
        share = seconds / sum(parts.values())
        print(f"{name:36} {1000 * seconds:8.1f} ms  {share:6.1%}")
    print(f"{'total, in one process':36} {1000 * sum(parts.values()):8.1f} ms")


if __name__ == "__main__":
    main()
