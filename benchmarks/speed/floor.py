"""The bare work: steps on batches that lie ready, and forward passes. No shuffling, no server.

One process a core, one thread each; every process does whole rounds, and a round's time is what
that comes to over the cores.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.speed.work import Work, normalised, report

Step = Callable[[Tensor, Tensor], object]


def eager(work: Work, f: nn.Module) -> Step:
    """As most code has it: a module and an optimiser."""
    optimiser = torch.optim.SGD(f.parameters(), lr=work.lr, momentum=work.momentum, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad()
        F.cross_entropy(f(x), y).backward()
        optimiser.step()

    return step


def flat(work: Work, f: nn.Module) -> Step:
    """Quicker: all weights in one tensor, one gradient, one update."""
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
    train = [(normalised(x[:n]), torch.as_tensor(y[:n])) for n in sizes if n]
    tests = [normalised(test_x[i : i + work.batch]) for i in range(0, work.test, work.batch)]
    f = work.module()
    step = eager(work, f) if os.environ.get("FLOOR") == "eager" else flat(work, f)
    for _ in range(2):  # the first time to warm up
        barrier.wait()
        for _ in range(work.rounds):
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
    report([seconds / work.rounds / cores] * work.rounds, float("nan"))


if __name__ == "__main__":
    main()
