"""The bare work: steps on batches that lie ready, and forward passes. No shuffling, no server.

Convolutions as fast as torch has them here: channels last, unless LAYOUT says otherwise. One
process a core, one thread each; every process does whole rounds, and a round's time is what
that comes to over the cores.
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

from benchmarks.speed.work import Work, normalised, report

Step = Callable[[Tensor, Tensor], object]


def step_of(work: Work, f: nn.Module) -> Step:
    """All weights in one tensor, one gradient, one update: quicker than a module's optimiser."""
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


def rounds(work: Work, barrier: Barrier) -> None:
    from fedadb.engine.process import keep_memory

    torch.set_num_threads(1)
    keep_memory()
    x, y, test_x, _ = work.data()
    sizes = [work.batch] * (work.rows // work.batch) + [work.rows % work.batch]
    layout = getattr(torch, os.environ.get("LAYOUT", "channels_last"))

    def batch(x: np.ndarray) -> Tensor:
        return normalised(x).contiguous(memory_format=layout)

    train = [(batch(x[:n]), torch.as_tensor(y[:n])) for n in sizes if n]
    tests = [batch(test_x[i : i + work.batch]) for i in range(0, work.test, work.batch)]
    f = work.module()
    step = step_of(work, f)
    for n in (1, work.rounds // 2):  # the first to warm up
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
    work = Work.given()
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(cores + 1)
    processes = [context.Process(target=rounds, args=(work, barrier)) for _ in range(cores)]
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
