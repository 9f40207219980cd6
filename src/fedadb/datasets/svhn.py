"""SVHN, the street view house numbers: Netzer et al., "Reading Digits in Natural Images with
Unsupervised Feature Learning", 2011. Two MATLAB files of cropped digits; `extra` is not used.
"""

from pathlib import Path

import numpy as np
import torch

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import check_examples
from fedadb.datasets.source import Download, Source
from fedadb.progress import Progress

ADDRESS = "http://ufldl.stanford.edu/housenumbers/"


def read_svhn(folder: Path, progress: Progress) -> Splits:
    train, test = (_read_digits(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    check_examples(folder, [train, test], 10)
    mean, std = (0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614)
    return Splits(train, test, tuple("0123456789"), Transform(mean, std, pad=4, flip=True))


def _read_digits(path: Path) -> Examples:
    """X is 32 × 32 × 3 × N; y is N × 1, with 10 for the digit 0."""
    import scipy.io  # late: it takes a while to load

    try:
        stored = scipy.io.loadmat(path, variable_names=("X", "y"))
    except Exception as error:  # scipy raises many kinds for a damaged file
        raise BadInput(f"{path} cannot be read as a MATLAB file: {error}") from error
    x, y = stored.get("X"), stored.get("y")
    if x is None or y is None or x.dtype != np.uint8 or x.shape != (32, 32, 3, y.size):
        raise BadInput(f"{path} must contain X of 32×32×3×N bytes and y of N labels")
    pixels = torch.from_numpy(np.ascontiguousarray(x.transpose(3, 2, 0, 1)))
    labels = torch.from_numpy(y.astype(np.int64).reshape(-1))
    return Examples(pixels, torch.where(labels == 10, 0, labels))


SVHN = Source(
    classes=10,
    shape=(3, 32, 32),
    rows=(73_257, 26_032),
    licence="non-commercial",
    path="svhn",
    downloads=(
        Download(
            "train_32x32.mat",
            (f"{ADDRESS}train_32x32.mat",),
            md5="e26dedcc434d2e4c54c9b2d4a06d8373",
            size=182_040_794,
        ),
        Download(
            "test_32x32.mat",
            (f"{ADDRESS}test_32x32.mat",),
            md5="eb5a983be6a315427106f1b164d9cef3",
            size=64_275_384,
        ),
    ),
    read=read_svhn,
)
