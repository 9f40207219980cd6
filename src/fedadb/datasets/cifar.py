"""CIFAR-10 and CIFAR-100 from their official binary files: Krizhevsky, "Learning Multiple Layers
of Features from Tiny Images", 2009. A record consists of one label byte (CIFAR-100: two, coarse and
fine) and 3 072 pixel bytes, channel by channel.
"""

from pathlib import Path

import numpy as np
import torch

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import check_examples, concatenate
from fedadb.datasets.source import Download, Source
from fedadb.progress import Progress

CIFAR10_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
PIXELS = 3 * 32 * 32


def read_cifar10(folder: Path, progress: Progress) -> Splits:
    train = concatenate([_read_records(folder / f"data_batch_{i}.bin", 1) for i in range(1, 6)])
    test = _read_records(folder / "test_batch.bin", 1)
    check_examples(folder, [train, test], len(CIFAR10_NAMES))
    mean, std = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)
    transform = Transform(mean, std, pad=4, flip=True, cutout=16)
    return Splits(train, test, CIFAR10_NAMES, transform)


def read_cifar100(folder: Path, progress: Progress) -> Splits:
    train, test = (_read_records(folder / f"{part}.bin", 2) for part in ("train", "test"))
    check_examples(folder, [train, test], 100)
    path = folder / "fine_label_names.txt"
    try:
        names = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if len(names) != 100:
        raise BadInput(f"{path} has {len(names)} names; it must have 100")
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    return Splits(train, test, tuple(names), Transform(mean, std, pad=4, flip=True, cutout=16))


def _read_records(path: Path, labels: int) -> Examples:
    """The images of the file; the last of the `labels` label bytes is the class."""
    try:
        stored = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    size = labels + PIXELS
    if not len(stored) or len(stored) % size:
        raise BadInput(f"{path} has {len(stored)} bytes; it must consist of {size}-byte records")
    records = torch.from_numpy(stored).view(-1, size)
    return Examples(records[:, labels:].reshape(-1, 3, 32, 32), records[:, labels - 1].long())


CIFAR10 = Source(
    classes=10,
    shape=(3, 32, 32),
    rows=(50_000, 10_000),
    licence="unstated",
    path="cifar-10-batches-bin",
    downloads=(
        Download(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            size=170_052_171,
        ),
    ),
    read=read_cifar10,
    marker="data_batch_1.bin",
    unpacked=200_000_000,
)
CIFAR100 = Source(
    classes=100,
    shape=(3, 32, 32),
    rows=(50_000, 10_000),
    licence="unstated",
    path="cifar-100-binary",
    downloads=(
        Download(
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            md5="03b5dce01913d631647c71ecec9e9cb8",
            size=168_513_733,
        ),
    ),
    read=read_cifar100,
    marker="train.bin",
    unpacked=200_000_000,
)
