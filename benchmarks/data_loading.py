"""Measures the loading, partitioning, augmentation and decoding of data.

    python -m benchmarks.data_loading

1. Generated data of the size of TissueMNIST (236 386 × 28 × 28) in MedMNIST's format: seconds to
   load them and to partition them among 100 and 10 000 clients, and the memory of the process.
2. Random CIFAR-sized batches of 128, augmented (crop, flip, normalise, cutout): images per second
   on one core.
3. A folder of JPEG files of 224 × 224: seconds to decode it, and to load it again from the cache.
4. A CSV table of 200 000 rows, with 20 columns of numbers and one of words: seconds to read it.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedadb import datasets
from fedadb.core.data import Shard
from fedadb.core.transform import Transform
from fedadb.experiment import build
from fedadb.experiment.config import Experiment

TISSUES = {"train": 165_466, "val": 23_640, "test": 47_280}


def resident() -> float:
    """The resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def write_tissues(folder: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, n in TISSUES.items():
        arrays[f"{part}_images"] = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
        arrays[f"{part}_labels"] = rng.integers(8, size=(n, 1), dtype=np.uint8)
    (folder / "medmnist").mkdir()
    np.savez_compressed(folder / "medmnist" / "tissuemnist.npz", **arrays)


def load_tissues() -> None:
    """Runs in a process of its own, so that its memory is due to the data."""
    start = resident()
    began = time.perf_counter()
    splits = datasets.load("tissuemnist")
    loaded = time.perf_counter() - began
    print(f"TissueMNIST-sized data: {loaded:.2f} s to load")
    for clients in (100, 10_000):
        began = time.perf_counter()
        federation = {"clients": clients, "partition": "iid"}
        rows = build.partition(Experiment.read({"federation": federation}), splits)
        shards = [Shard(splits.train, torch.from_numpy(r), 8, splits.transform) for r in rows]
        seconds = time.perf_counter() - began
        memory = f"{resident():.0f} MB resident"
        print(f"  {len(shards):6} clients: {seconds:.2f} s to partition, {memory}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"  {start:.0f} MB of it before loading; {peak:.0f} MB at the peak")


def augment() -> None:
    torch.set_num_threads(1)
    images = torch.randint(256, (50_000, 3, 32, 32), dtype=torch.uint8)
    transform = Transform((0.5,) * 3, (0.25,) * 3, pad=4, flip=True, cutout=16)
    rng = torch.Generator().manual_seed(0)
    best = float("inf")
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(20):
            transform.augment(images[torch.randint(50_000, (128,), generator=rng)], rng)
        best = min(best, time.perf_counter() - began)
    print(f"augmentation: {20 * 128 / best:.0f} images per second on one core")


def decode(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (folder / name).mkdir()
        for i in range(1_000):
            coarse = rng.integers(256, size=(14, 14, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((224, 224)).save(folder / name / f"{i}.jpg")
    for step in ("decoding", "loading again"):
        began = time.perf_counter()
        datasets.load(f"folder:{folder}")
        print(f"2 000 JPEG files of 224 × 224, {step}: {time.perf_counter() - began:.2f} s")


def read_table(path: Path) -> None:
    rows, columns = 200_000, 20
    numbers = np.random.default_rng(0).normal(size=(rows, columns)).tolist()
    with path.open("w") as file:
        file.write(",".join(f"x{i}" for i in range(columns)) + ",word,label\n")
        for i, row in enumerate(numbers):
            file.write(",".join(f"{value:.6f}" for value in row) + f",{'abc'[i % 3]},{i % 5}\n")
    began = time.perf_counter()
    datasets.load(f"csv:{path}")
    seconds, size = time.perf_counter() - began, path.stat().st_size / 1e6
    print(f"a CSV table of {rows} rows, {size:.0f} MB: {seconds:.2f} s to read")


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tissues(folder)
        environment = {"FEDADB_DATA": str(folder), "XDG_CACHE_HOME": str(folder / ".cache")}
        code = "from benchmarks.data_loading import load_tissues as f; f()"
        subprocess.run([sys.executable, "-c", code], env=os.environ | environment, check=True)
    augment()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["XDG_CACHE_HOME"] = str(Path(temporary) / ".cache")
        decode(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary:
        read_table(Path(temporary) / "table.csv")


if __name__ == "__main__":
    main()
