"""Writes small datasets in their official formats."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from PIL import Image

from fedadb.datasets import cifar, pacs

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> Any:
    return RNG.integers(256, size=shape, dtype=np.uint8)


def write_medmnist(path: Path, classes: int, *channels: int, **changes: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, n in (("train", 40), ("val", 10), ("test", 20)):
        arrays[f"{part}_images"] = pixels(n, 28, 28, *channels)
        arrays[f"{part}_labels"] = (np.arange(n) % classes).astype(np.uint8)[:, None]
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def write_cifar10(folder: Path, rows: int = 20) -> None:
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        labels = (np.arange(rows) % 10).astype(np.uint8)[:, None]
        (folder / f"{name}.bin").write_bytes(np.hstack([labels, pixels(rows, 3072)]).tobytes())


def write_cifar100(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, rows in (("train", 200), ("test", 100)):
        fine = (np.arange(rows) % 100).astype(np.uint8)[:, None]
        records = np.hstack([fine // 5, fine, pixels(rows, 3072)])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    names = "".join(f"thing_{c}\n" for c in range(100))
    (folder / "fine_label_names.txt").write_text(names)


def write_svhn(folder: Path, train: int = 30, test: int = 10) -> None:
    folder.mkdir(parents=True)
    for part, n in (("train", train), ("test", test)):
        y = (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]  # 1 to 10
        scipy.io.savemat(folder / f"{part}_32x32.mat", {"X": pixels(32, 32, 3, n), "y": y})


def write_mnist(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part, n in (("train", 30), ("t10k", 10)):
        for kind, shape, body in (
            ("images-idx3", (n, 28, 28), pixels(n, 28, 28)),
            ("labels-idx1", (n,), (np.arange(n) % 10).astype(np.uint8)),
        ):
            head = bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">u4").tobytes()
            content = gzip.compress(head + body.tobytes(), mtime=0)
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(content)


def write_cinic(folder: Path) -> None:
    for part, n in (("train", 3), ("valid", 1), ("test", 2)):
        for name in cifar.CIFAR10_NAMES:
            write_images(folder / part / name, n, size=(32, 32))


def write_pacs(folder: Path, n: int = 5) -> None:
    for d, domain in enumerate(pacs.DOMAINS):
        for c, name in enumerate(pacs.NAMES):
            inside = folder / domain / name
            inside.mkdir(parents=True)
            for i in range(n):
                colour = (60 * d, 30 * c, 40 * i)
                Image.new("RGB", (227, 227), colour).save(inside / f"{i}.jpg")


def write_images(folder: Path, n: int, mode: str = "RGB", size: tuple[int, int] = (32, 30)) -> None:
    folder.mkdir(parents=True)
    for i in range(n):
        Image.new(mode, size, i * 20).save(folder / f"{i}.png")
