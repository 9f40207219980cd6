"""The peak of this machine: fused multiply-adds in registers, in billions of operations per second.

    python -m benchmarks.peak

A multiply-add counts as two operations. Nothing that multiplies can be faster, so the speed of
other programs is given as a share of it.
"""

import ctypes
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from fedadb.kernels.library import compiler

SOURCE = Path(__file__).with_name("peak.cpp")
OPTIONS = ("-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-shared", "-fPIC")
# Short repetitions, about 2 ms each: on a shared machine, few longer ones are left alone.
STEPS = 200_000
REPEATS = 300


@cache
def library() -> ctypes.CDLL:
    """The compiled loop; compiling it takes less than a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/peak.so"
        subprocess.run([*compiler(), *OPTIONS, str(SOURCE), "-o", path], check=True)
        loaded = ctypes.CDLL(path)
    loaded.multiply_add.argtypes = [ctypes.c_long, ctypes.c_float, ctypes.c_float]
    loaded.multiply_add.restype = ctypes.c_float
    loaded.flops_per_step.restype = ctypes.c_long
    return loaded


def measure_peak(threads: int = 1, repeats: int = REPEATS, steps: int = STEPS) -> float:
    """GFLOP/s of that many threads together, the best of several repetitions."""
    loop = library().multiply_add  # ctypes calls it without holding Python's lock
    together = threading.Barrier(threads)

    def repeat(_: int) -> list[tuple[float, float]]:
        times = []
        for _ in range(repeats):
            together.wait()
            began = time.perf_counter()
            loop(steps, 0.5, 0.5)  # the sums approach 1, so none of them overflows or vanishes
            times.append((began, time.perf_counter()))
        return times

    with ThreadPoolExecutor(threads) as pool:
        repetitions = zip(*pool.map(repeat, range(threads)), strict=True)
    # A repetition lasts from the first thread's start to the last one's end.
    best = min(max(end for _, end in r) - min(began for began, _ in r) for r in repetitions)
    return float(threads * steps * library().flops_per_step() / best / 1e9)


def main() -> None:
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        print(f"{threads} threads: {measure_peak(threads):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
