"""Time and memory of a round as one quantity varies: workers, clients, classes, model.

    python benchmarks/scaling.py [--leave-out model]

The starting point is 100 clients with 100 random 28×28 images each, of which 10 train LeNet for one
epoch. The time of a round is the best of those measured. Memory is the peak of all processes
together, with each shared page counted once (PSS), and that of the largest worker alone.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedadb.engine.process import cores
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run

BASE: dict[str, Any] = {
    "workers": cores(), "clients": 100, "sampled": 10, "classes": 10, "model": "lenet",
    "rounds": 15,
}  # fmt: skip
VARIED: dict[str, list[dict[str, Any]]] = {
    "workers": [{"workers": n} for n in range(1, cores() + 1)],
    "clients": [{"clients": n} for n in (100, 1_000, 10_000)],
    "sampled": [{"sampled": n} for n in (5, 10, 20, 40)],
    "classes": [{"classes": n} for n in (2, 10, 100)],
    "model": [
        {"model": name, "clients": 20, "sampled": 2, "rounds": 4} for name in ("lenet", "resnet18")
    ],
}
ROWS = 100


class MemoryMonitor(threading.Thread):
    """Measures this process and its children until `stop` is set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.total = self.worker = 0.0  # MB, at the peak

    def run(self) -> None:
        while not self.stop.wait(0.05):
            children = Path("/proc/self/task").glob("*/children")
            pids = [pid for path in children for pid in path.read_text().split()]
            workers = [pss(pid) for pid in pids]
            self.total = max(self.total, pss("self") + sum(workers))
            self.worker = max([self.worker, *workers])


def pss(pid: str) -> float:
    """A process's share of memory, in MB: each page divided by the processes that map it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def make_data(setting: dict[str, Any], path: Path) -> None:
    rng = np.random.default_rng(0)
    n = ROWS * setting["clients"]
    x = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
    y = np.arange(n) % setting["classes"]
    np.savez(path, x_train=x, y_train=y, x_test=x[:1000], y_test=y[:1000])


def measure(setting: dict[str, Any], data: Path) -> str:
    """Run one setting, and describe its time and memory."""
    table = {
        "dataset": f"npz:{data}",
        "model": setting["model"],
        "rounds": setting["rounds"],
        "federation": {
            "clients": setting["clients"],
            "participation": setting["sampled"] / setting["clients"],
            "partition": "iid",
        },
        "local": {"epochs": 1, "batch_size": 50},
        "algorithm": "fedavg",
        "engine": {"workers": setting["workers"]},
    }
    memory = MemoryMonitor()
    memory.start()
    began = time.perf_counter()
    history = run(Experiment.read(table), data.parent / "run")
    took = time.perf_counter() - began
    memory.stop.set()
    memory.join()
    seconds = [record["seconds"] for record in history.rounds]
    return (
        f"{min(seconds[1:-1]):8.3f} s per round  {took - sum(seconds):6.2f} s to start  "
        f"{memory.total:6.0f} MB in total  {memory.worker:5.0f} MB per worker"
    )


def fresh_process() -> ProcessPoolExecutor:
    """A process for one measurement, so that memory of earlier ones is not counted."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--leave-out", default="", metavar="NAME,...")
    left_out = parser.parse_args().leave_out.split(",")
    for name, settings in VARIED.items():
        for setting in settings:
            if name in left_out or setting[name] in left_out:
                continue
            with tempfile.TemporaryDirectory() as folder, fresh_process() as process:
                complete, data = BASE | setting, Path(folder) / "data.npz"
                make_data(complete, data)
                measured = process.submit(measure, complete, data).result()
            print(f"{name:8} {setting[name]:>9}: {measured}", flush=True)


if __name__ == "__main__":
    main()
