"""CIFAR-10 from its official binary files: Krizhevsky, "Learning Multiple Layers of Features from
Tiny Examples", 2009. A record is one label byte and 3 072 pixel bytes, channel by channel.
"""

from pathlib import Path

import numpy as np
import torch

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import check, concatenate
from fedadb.datasets.source import Source

NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
RECORD = 1 + 3 * 32 * 32


def read(folder: Path) -> Splits:
    train = concatenate([_records(folder / f"data_batch_{i}.bin") for i in range(1, 6)])
    test = _records(folder / "test_batch.bin")
    check(folder, [train, test], len(NAMES))
    transform = Transform(
        mean=(0.49139968, 0.48215827, 0.44653124),
        std=(0.24703233, 0.24348505, 0.26158768),
        pad=4,
        flip=True,
        cutout=16,
    )
    return Splits(train, test, NAMES, transform)


def _records(path: Path) -> Examples:
    try:
        stored = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if not len(stored) or len(stored) % RECORD:
        raise BadInput(
            f"{path} has {len(stored)} bytes, which is no number of {RECORD}-byte records; "
            "fetch it anew"
        )
    records = torch.from_numpy(stored).view(-1, RECORD)
    return Examples(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long())


SOURCE = Source(
    classes=len(NAMES),
    path="cifar-10-batches-bin",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    read=read,
)
