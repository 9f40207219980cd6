"""The bare work: steps on batches that are already in memory, and forward passes.

There is no shuffling and no server. Images are in channels-last layout, in which torch's
convolutions are fastest here, unless LAYOUT names another one. One process per core, with one
thread each, computes whole rounds; the time of a round is its time in one process divided by the
number of cores.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.speed.workload import Workload, normalised, report

Step = Callable[[Tensor, Tensor], object]


def make_step(work: Workload, f: nn.Module) -> Step:
    """A step on one flat tensor of all weights, which is faster than an optimiser on a module."""
    names, shapes = zip(*((n, p.shape) for n, p in f.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]
    w = torch.cat([p.detach().reshape(-1) for p in f.parameters()])
    velocity = torch.zeros_like(w)

    def step(x: Tensor, y: Tensor) -> None:
        at = w.detach().requires_grad_()
        parts = (t.view(s) for t, s in zip(at.split(sizes), shapes, strict=True))
        logits = functional_call(f, dict(zip(names, parts, strict=True)), x)
        (g,) = torch.autograd.grad(F.cross_entropy(logits, y), at)
        velocity.mul_(work.momentum).add_(g)
        w.sub_(velocity, alpha=work.lr)

    return step


def compute_rounds(work: Workload, barrier: Barrier) -> None:
    from fedadb.engine.process import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    x, y, test_x, _ = work.data()
    sizes = [work.batch] * (work.rows // work.batch) + [work.rows % work.batch]
    layout = getattr(torch, os.environ.get("LAYOUT", "channels_last"))

    def batch(x: np.ndarray) -> Tensor:
        return normalised(x).contiguous(memory_format=layout)

    train = [(batch(x[:n]), torch.as_tensor(y[:n])) for n in sizes if n]
    tests = [batch(test_x[i : i + work.batch]) for i in range(0, work.test, work.batch)]
    f = work.module()
    step = make_step(work, f)
    for n in (1, work.rounds // 2):  # one round to warm up
        barrier.wait()
        for _ in range(n):
            for _ in range(work.sampled * work.epochs):
                for a, b in train:
                    step(a, b)
            with torch.inference_mode():
                for a in tests:
                    f(a)
        barrier.wait()


def main() -> None:
    work = Workload.from_environment()
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(cores + 1)
    processes = [context.Process(target=compute_rounds, args=(work, barrier)) for _ in range(cores)]
    for process in processes:
        process.start()
    for _ in range(2):
        barrier.wait()
        began = time.perf_counter()
        barrier.wait()
        seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    report([seconds / (work.rounds // 2) / cores] * work.rounds, float("nan"))


if __name__ == "__main__":
    main()
