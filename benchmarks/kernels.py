"""Our own kernels against torch's: a step and a forward pass of each model, in one thread.

    python -m benchmarks.kernels [--repeats 20] [--results kernels.json]

torch computes in channels-last layout, its fastest here. Both take turns in one process, and the
best time of each counts. A step is the gradient of all weights, a forward pass is that of an
evaluation. The machine's peak is measured in between. Operations are those of plain convolutions:
Winograd's algorithm, which computes ResNet-18, needs fewer, so its speed may be above the peak. The
results are written as JSON, too.
"""

import argparse
import copy
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.flops import forward_flops, step_flops
from benchmarks.peak import measure_peak
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, gradient
from fedadb.engine.process import keep_freed_memory
from fedadb.kernels.body import fast_body
from fedadb.kernels.convolutions import is_fast, use_kernels
from fedadb.kernels.library import KernelsUnavailable, library
from fedadb.models.cnn import CNN
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18

CLASSES = 10


class Case(NamedTuple):
    """A model, its images, and the batches that it is measured on."""

    model: LeNet | CNN | ResNet18
    shape: tuple[int, int, int]
    batches: tuple[int, ...]
    most_repeats: int = 1000
    # Of the gradient's norm. Rounding may decide which of two almost equal pixels a pooling takes,
    # and one such pixel among millions changes the gradient by up to 1e-3.
    agreement: float = 1e-2


CASES = {
    "lenet": Case(LeNet(), (1, 28, 28), (10, 32, 64, 128, 500)),
    "cnn": Case(CNN(), (1, 28, 28), (10, 32, 64, 128, 500)),
    # Rounding decides signs before ReLUs, too: torch itself is 6e-3 away from float64.
    "resnet18": Case(ResNet18(), (3, 32, 32), (32, 64), most_repeats=5, agreement=3e-2),
}


class Row(NamedTuple):
    """The measurement of one pass over a batch."""

    model: str
    what: str  # "step" or "forward"
    batch: int
    flops: int
    ours: float  # seconds
    torch: float


def both(case: Case) -> tuple[Model, Model]:
    """The same model with our kernels and with torch's."""
    body = case.model.body(case.shape)
    theirs = assemble(body, FedAvg().heads, Domain.unbounded(case.shape), CLASSES, Stream(0))
    # A run leaves the CNN, which has 64 channels, to torch.
    if fast := fast_body(body, case.shape, most_channels=64):
        return replace(theirs, fast_body=fast), theirs
    if not any(map(is_fast, body.modules())):
        sys.exit(f"our kernels do not compute {body}")
    ours = replace(theirs, module=copy.deepcopy(theirs.module))
    use_kernels(ours.module.body)
    return ours, theirs


def step(f: Model, w: Vector, x: Tensor, y: Tensor) -> Vector:
    return gradient(lambda v: F.cross_entropy(f(v, x).logits, y), w)


@torch.inference_mode()
def forward(f: Model, w: Vector, x: Tensor) -> Tensor:
    return f(w, x).logits


def best_times(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The shortest time of each call; they take turns, so often and for at least a second.

    A turn is three calls in a row, because in a run, too, a call finds the caches as the same call
    has left them.
    """
    best = dict.fromkeys(calls, float("inf"))
    start = time.perf_counter()
    for turn in itertools.count(1):
        for name, call in calls.items():
            for _ in range(3):
                began = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - began)
        if turn >= repeats and time.perf_counter() - start >= 1:
            break
    return best


def measure(model: str, batch: int, repeats: int) -> Iterator[Row]:
    """A step and a forward pass of the model, on random images."""
    case = CASES[model]
    with Stream(0).seeded():
        ours, theirs = both(case)
        x, y = torch.randn(batch, *case.shape), torch.randint(CLASSES, (batch,))
    w = ours.weights()
    mine, reference = step(ours, w, x, y), step(theirs, w, x, y)
    if (difference := float((mine - reference).norm() / reference.norm())) > case.agreement:
        sys.exit(f"{model}, batch {batch}: gradients differ by {difference:.1e} of their norm")
    times = best_times(
        {
            "step": lambda: step(ours, w, x, y),
            "torch step": lambda: step(theirs, w, x, y),
            "forward": lambda: forward(ours, w, x),
            "torch forward": lambda: forward(theirs, w, x),
        },
        min(repeats, case.most_repeats),
    )
    module = nn.Sequential(theirs.module.body, theirs.module.heads[theirs.head])
    for what, flops in (("step", step_flops), ("forward", forward_flops)):
        work = batch * flops(module, case.shape)
        yield Row(model, what, batch, work, times[what], times[f"torch {what}"])


def print_table(rows: list[Row], peak: float) -> None:
    def speed(row: Row, seconds: float) -> str:
        gflops = row.flops / seconds / 1e9
        return f"{1000 * seconds:9.3f} {gflops:8.1f} {gflops / peak:7.1%}"

    print(f"peak: {peak:.1f} GFLOP/s in one thread\n")
    print(f"{'':23}{'fedadb':>26}{'torch, channels last':>28}")
    columns = f"{'ms':>9} {'GFLOP/s':>8} {'of peak':>7}"
    print(f"{'model    pass    batch':23}{columns}  {columns}  speed over torch's")
    for row in rows:
        print(
            f"{row.model:8} {row.what:7} {row.batch:5} {speed(row, row.ours)}  "
            f"{speed(row, row.torch)} {row.torch / row.ours:8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--results", type=Path, default=Path("kernels.json"))
    given = parser.parse_args()
    try:
        library()
    except KernelsUnavailable as error:
        sys.exit(f"our kernels cannot be measured: {error}")
    torch.set_num_threads(1)
    keep_freed_memory()
    rows: list[Row] = []
    peak = measure_peak()
    for model, case in CASES.items():
        for batch in case.batches:
            rows += measure(model, batch, given.repeats)
            peak = max(peak, measure_peak())
    rows.sort(key=lambda row: (list(CASES).index(row.model), row.what != "step", row.batch))
    print_table(rows, peak)
    results = {"peak": peak, "rows": [row._asdict() for row in rows]}
    given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
