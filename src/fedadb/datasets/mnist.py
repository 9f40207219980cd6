"""Grey images of 28 × 28: MNIST (LeCun et al., 1998), Fashion-MNIST (Xiao et al., 2017), and the
digits that come with scikit-learn, which need no download.
"""

import gzip
import zlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import check_examples, stratified_split
from fedadb.datasets.source import Download, Source
from fedadb.progress import Progress

DIGIT_NAMES = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip


def read_digits(_: Path, progress: Progress) -> Splits:
    """1 797 images of 8 × 8 with values from 0 to 16, enlarged to 28 × 28."""
    rows = torch.from_numpy(np.loadtxt(_digits_file(), delimiter=",", dtype=np.float32))
    small = rows[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)
    x = F.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    images = Examples(x.round().to(torch.uint8), rows[:, -1].long())
    train, test = (images.rows(rows) for rows in stratified_split(images.y, classes=10))
    return Splits(train, test, DIGIT_NAMES, Transform(mean=(0.5,), std=(0.5,)))


def _digits_file() -> Path:
    """scikit-learn's file of digits, found without importing scikit-learn, which takes seconds."""
    package = find_spec("sklearn")
    origin = package.origin if package else None
    assert origin is not None, "fedadb depends on scikit-learn"
    return Path(origin).parent / "datasets" / "data" / "digits.csv.gz"


def read_mnist(
    names: tuple[str, ...], mean: float, std: float, folder: Path, progress: Progress
) -> Splits:
    train, test = (_read_part(folder, part) for part in ("train", "t10k"))
    check_examples(folder, [train, test], len(names))
    return Splits(train, test, names, Transform((mean,), (std,)))


def _read_part(folder: Path, part: str) -> Examples:
    x = _read_idx(folder / f"{part}-images-idx3-ubyte.gz", dimensions=3)
    y = _read_idx(folder / f"{part}-labels-idx1-ubyte.gz", dimensions=1)
    if len(x) != len(y):
        raise BadInput(f"{folder}: {part} has {len(x)} images and {len(y)} labels")
    return Examples(torch.from_numpy(x)[:, None], torch.from_numpy(y).long())


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of a gzipped IDX file.

    It starts with two zero bytes, the type (8: bytes), the number of dimensions and their sizes.
    """
    try:
        stored = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    head = 4 + 4 * dimensions
    shape = np.frombuffer(stored[4:head].ljust(head - 4), dtype=">u4").astype(int)
    if stored[:4] != bytes([0, 0, 8, dimensions]) or len(stored) != head + shape.prod():
        raise BadInput(f"{path} is incomplete or not in IDX format")
    return np.frombuffer(bytearray(stored[head:]), dtype=np.uint8).reshape(shape)


def _source(
    path: str,
    names: tuple[str, ...],
    scale: tuple[float, float],
    licence: str,
    addresses: tuple[str, ...],
    files: dict[str, tuple[str, int]],
) -> Source:
    return Source(
        classes=len(names),
        shape=(1, 28, 28),
        rows=(60_000, 10_000),
        licence=licence,
        path=path,
        downloads=tuple(
            Download(file, tuple(address + file for address in addresses), md5, size)
            for file, (md5, size) in files.items()
        ),
        read=partial(read_mnist, names, *scale),
    )


DIGITS = Source(
    classes=10,
    shape=(1, 28, 28),
    rows=(1_438, 359),
    licence="BSD",
    path="",
    downloads=(),
    read=read_digits,
)
MNIST = _source(
    "mnist",
    DIGIT_NAMES,
    (0.1307, 0.3081),
    "CC BY-SA 3.0",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    {
        "train-images-idx3-ubyte.gz": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        "train-labels-idx1-ubyte.gz": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        "t10k-images-idx3-ubyte.gz": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        "t10k-labels-idx1-ubyte.gz": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    },
)
FASHION_MNIST = _source(
    "fashion-mnist",
    CLOTHES,
    (0.2860, 0.3530),
    "MIT",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    {
        "train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        "train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
        "t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        "t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    },
)
