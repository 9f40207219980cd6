"""Arrays of images and labels: reading, checking and splitting them."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream


def read_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """All arrays of an .npz file. Nothing is unpickled."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    try:
        # np.load also accepts other formats than zip; ZipFile does not.
        with path.open("rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
    except PermissionError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # zip, zlib and numpy raise many kinds for a damaged file
        if "Object arrays" in str(error):
            raise BadInput(
                f"{path} contains Python objects, such as a list of images of different sizes; "
                "save arrays of numbers, with all images of one size"
            ) from error
        raise BadInput(f"{path} is not an .npz file of plain arrays: {error}") from error


def to_examples(path: Path, arrays: dict[str, NDArray[np.generic]], x: str, y: str) -> Examples:
    """The images in array `x` and the labels in array `y`; `path` is for errors."""
    for name in (x, y):
        if name not in arrays:
            raise BadInput(f"{path} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
    images, labels = arrays[x], arrays[y]
    if images.dtype != np.uint8:
        raise BadInput(f"{path}: {x} is {images.dtype}; images must be uint8, from 0 to 255")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise BadInput(
            f"{path}: {x} has shape {arrays[x].shape}; images must be N×height×width or "
            "N×height×width×channels with 1 or 3 channels"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise BadInput(
            f"{path}: {y} is {labels.dtype} of shape {arrays[y].shape}; "
            "labels must be one whole number per image"
        )
    if len(images) != len(labels):
        raise BadInput(f"{path}: {x} has {len(images)} rows and {y} has {len(labels)}")
    if not len(images):
        raise BadInput(f"{path}: {x} is empty")
    nchw = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return Examples(nchw, torch.from_numpy(labels.astype(np.int64)))


def concatenate(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))


def check_examples(path: Path, parts: Sequence[Examples], classes: int) -> None:
    """Raise BadInput unless all labels are below `classes` and all images have one shape."""
    for part in parts:
        low, high = int(part.y.min()), int(part.y.max())
        if low < 0 or high >= classes:
            raise BadInput(
                f"{path}: label {low if low < 0 else high} is out of range; "
                f"{classes} classes have the labels 0 to {classes - 1}"
            )
        if part.x.shape[1:] != parts[0].x.shape[1:]:
            raise BadInput(
                f"{path}: training images have shape {tuple(parts[0].x.shape[1:])} and test "
                f"images {tuple(part.x.shape[1:])}; they must have one shape"
            )


def stratified_split(labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Training and test rows: a fixed random fifth of each class, rounded, is for testing."""
    rng = Stream(0, ("split",)).generator()
    train: list[Tensor] = []
    test: list[Tensor] = []
    for c in range(classes):
        rows = torch.nonzero(labels == c).flatten()
        rows = rows[torch.randperm(len(rows), generator=rng)]
        fifth = round(len(rows) / 5)
        test.append(rows[:fifth])
        train.append(rows[fifth:])
    return torch.cat(train), torch.cat(test)
