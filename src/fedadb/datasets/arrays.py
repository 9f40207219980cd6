"""Arrays as images and labels, checked before anything is built on them."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput


def read(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of the file; none that would need unpickling."""
    if not path.is_file():
        raise BadInput(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    try:
        with path.open("rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
    except PermissionError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever a damaged file makes zip, zlib and numpy raise
        if "Object arrays" in str(error):
            raise BadInput(
                f"{path} holds Python objects, as lists of images of different sizes become; "
                "save arrays of numbers, images all of one size"
            ) from error
        raise BadInput(f"{path} is not an .npz of plain arrays: {error}") from error


def images(path: Path, arrays: dict[str, NDArray[np.generic]], x: str, y: str) -> Examples:
    """The images called x with the labels called y, as tensors."""
    for name in (x, y):
        if name not in arrays:
            raise BadInput(f"{path} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
    pixels, labels = arrays[x], arrays[y]
    if pixels.dtype != np.uint8:
        raise BadInput(f"{path}: {x} is {pixels.dtype}; images must be uint8, from 0 to 255")
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        raise BadInput(
            f"{path}: {x} has shape {arrays[x].shape}; images are N×height×width or "
            "N×height×width×channels with 1 or 3 channels"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise BadInput(
            f"{path}: {y} is {labels.dtype} of shape {arrays[y].shape}; "
            "labels are one whole number an image"
        )
    if len(pixels) != len(labels):
        raise BadInput(f"{path}: {x} has {len(pixels)} rows and {y} has {len(labels)}")
    if not len(pixels):
        raise BadInput(f"{path}: {x} is empty")
    nchw = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    return Examples(nchw, torch.from_numpy(labels.astype(np.int64)))


def concatenate(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))


def check(path: Path, parts: Sequence[Examples], classes: int) -> None:
    """Every label names a class, and the images of all parts have one shape."""
    for part in parts:
        low, high = int(part.y.min()), int(part.y.max())
        if low < 0 or high >= classes:
            raise BadInput(
                f"{path}: label {low if low < 0 else high} is out of range; "
                f"{classes} classes have the labels 0 to {classes - 1}"
            )
        if part.x.shape[1:] != parts[0].x.shape[1:]:
            raise BadInput(
                f"{path}: training images are {tuple(parts[0].x.shape[1:])} and test images "
                f"{tuple(part.x.shape[1:])}; they must have one shape"
            )
