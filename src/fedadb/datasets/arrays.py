"""Arrays of inputs and labels: reading, checking and splitting them."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream

CHANNELS = (1, 3)  # of an image


def read_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """All arrays of an .npz file. Nothing is unpickled."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    try:
        # np.load also accepts other formats than zip; ZipFile does not.
        with path.open("rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
    except PermissionError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # zip, zlib and numpy raise many kinds for a damaged file
        if "Object arrays" in str(error):
            raise BadInput(
                f"{path} contains Python objects, such as a list of images of different sizes; "
                "save arrays of numbers, with all images of one size"
            ) from error
        reason = str(error)[:200]  # numpy quotes the whole of a damaged header
        raise BadInput(f"{path} is not an .npz file of plain arrays: {reason}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns other members as bytes
            raise BadInput(f"{path} is not an .npz file of plain arrays: {name!r} is none")
    return arrays


def to_examples(
    source: object, arrays: Mapping[str, NDArray[np.generic]], x: str, y: str
) -> Examples:
    """The inputs in array `x` and the labels in array `y`; `source` names the data in errors."""
    for name in (x, y):
        if name not in arrays:
            raise BadInput(f"{source} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
    if arrays[x].ndim and not len(arrays[x]):
        raise BadInput(f"{source}: {x} is empty")
    inputs = _to_inputs(f"{source}: {x}", arrays[x])
    labels = _to_labels(f"{source}: {y}", arrays[y])
    if len(inputs) != len(labels):
        raise BadInput(f"{source}: {x} has {len(inputs)} rows and {y} has {len(labels)}")
    return Examples(inputs, labels)


def _to_inputs(name: str, array: NDArray[np.generic]) -> Tensor:
    """Images with values from 0 to 255, or float32 of any other shape."""
    if array.dtype == np.uint8:
        return _to_pixels(name, array)
    if not np.issubdtype(array.dtype, np.floating):
        raise BadInput(
            f"{name} is {array.dtype}; images must be uint8, from 0 to 255, or floats from 0 to 1, "
            "and all other inputs floats"
        )
    if array.ndim < 2 or not array[0].size:
        raise BadInput(f"{name} has shape {array.shape}; it must be N×features, or N×any shape")
    with np.errstate(over="ignore"):  # what is too large for float32 is found below
        x = _to_tensor(array.astype(np.float32, copy=False))
    finite = x.isfinite().flatten(1).all(1)
    if not finite.all():
        row = int(torch.nonzero(~finite)[0])
        raise BadInput(f"{name} has a value in row {row} that is not a finite number")
    channels = _channel_axis(array.shape)
    if channels is None:
        return x
    low, high = (float(end) for end in torch.aminmax(x))
    if low < 0 or high > 1:
        raise BadInput(
            f"{name} has values from {low:g} to {high:g}; images of floats must be from 0 to 1, "
            "and what is not an image must not have its shape: flatten it"
        )
    return 255 * x.movedim(channels, 1).contiguous()


def _to_pixels(name: str, array: NDArray[np.generic]) -> Tensor:
    images = array[..., None] if array.ndim == 3 else array
    channels = _channel_axis(images.shape)
    if channels is None:
        raise BadInput(
            f"{name} has shape {array.shape}; images must be N×height×width, "
            "N×height×width×channels or N×channels×height×width, with 1 or 3 channels, and all "
            "other inputs floats"
        )
    return _to_tensor(images).movedim(channels, 1).contiguous()


def _channel_axis(shape: Sequence[int]) -> int | None:
    """The axis of the channels, last or first, if a batch of that shape consists of images."""
    if len(shape) == 4:
        for axis, sides in ((3, shape[1:3]), (1, shape[2:4])):
            if is_image_shape((shape[axis], *sides)):
                return axis
    return None


def _to_labels(name: str, array: NDArray[np.generic]) -> Tensor:
    labels = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise BadInput(
            f"{name} is {labels.dtype} of shape {array.shape}; "
            "labels must be one whole number per image or row"
        )
    return torch.from_numpy(labels.astype(np.int64))


def _to_tensor(array: NDArray[np.generic]) -> Tensor:
    """The array as a tensor that shares its memory, if torch can use it as it is."""
    usable = np.require(array, requirements=["C_CONTIGUOUS", "WRITEABLE"])
    return torch.from_numpy(usable)


def concatenate(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))


def check_examples(source: object, parts: Sequence[Examples], classes: int) -> None:
    """Raise BadInput unless all labels are below `classes` and all inputs have one shape."""
    for part in parts:
        low, high = int(part.y.min()), int(part.y.max())
        if low < 0 or high >= classes:
            raise BadInput(
                f"{source}: label {low if low < 0 else high} is out of range; "
                f"{classes} classes have the labels 0 to {classes - 1}"
            )
        if part.x.shape[1:] != parts[0].x.shape[1:]:
            raise BadInput(
                f"{source}: training {noun(part.x)} have shape {tuple(parts[0].x.shape[1:])} and "
                f"test {noun(part.x)} {tuple(part.x.shape[1:])}; they must have one shape"
            )


def is_image_shape(shape: Sequence[int]) -> bool:
    """Whether an input of that shape is an image: 1 or 3 channels, height and width.

    Features of a network often have the shape N×1×1, which is none.
    """
    return len(shape) == 3 and shape[0] in CHANNELS and min(shape[1:]) > 1


def noun(x: Tensor) -> str:
    """What the inputs are, for errors."""
    return "images" if is_image_shape(x.shape[1:]) else "rows"


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
