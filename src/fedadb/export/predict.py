"""Classifies image files with an exported model."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedadb.core.errors import BadInput
from fedadb.datasets.images import GREY_16_BIT, format_for, open_image, read_pixels
from fedadb.export.classifier import SUFFIXES, ModelCard
from fedadb.export.onnx_file import OnnxModel
from fedadb.export.safetensors_file import SafetensorsModel

BATCH_SIZE = 64  # images in memory at a time


class ExportedModel(Protocol):
    """A model that was read from a file of `fedadb export`."""

    card: ModelCard

    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """The probability of each class for images of N × C × H × W in [0, 1]."""
        ...


class Prediction(NamedTuple):
    """The most likely classes of an image, with their probabilities, in descending order."""

    file: Path
    top: list[tuple[str, float]]


def read_model(path: Path) -> ExportedModel:
    """Read a file of `fedadb export`."""
    if path.is_dir():
        raise BadInput(
            f"{path} is a directory; export the model of a run with "
            f"`fedadb export {path} --to model.safetensors`"
        )
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"{path} is not an exported model: it must end in {' or '.join(SUFFIXES)}")
    if not path.exists():
        raise BadInput(f"{path} does not exist")
    return OnnxModel(path) if path.suffix.lower() == ".onnx" else SafetensorsModel(path)


def find_images(paths: Sequence[Path]) -> list[Path]:
    """The given files, and the images in the given folders and their subfolders."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise BadInput(f"{path} does not exist")
        if not path.is_dir():
            files.append(path)
        elif inside := _images_below(path):
            files += inside
        else:
            raise BadInput(f"{path} and its subfolders contain no images")
    return files


def _images_below(folder: Path) -> list[Path]:
    known = {end for end, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    files = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    return sorted(p for p in files if p.suffix.lower() in known and not p.name.startswith("."))


def predict_images(
    model: ExportedModel, files: Sequence[Path], top: int, warn: Callable[[str], None]
) -> Iterator[Prediction]:
    """The `top` most likely classes of each image; images that cannot be read are skipped.

    Images are converted to the model's size and colour mode, as those of a `folder:` dataset.
    `warn` receives one message per skipped image, and one about the first conversion of each kind.
    """
    classes = model.card.classes
    if top > len(classes):
        raise BadInput(f"--top {top}: the model has {len(classes)} classes")
    format = format_for(model.card.shape)
    warned: set[str] = set()

    def warn_once(about: str, message: str) -> None:
        if about not in warned:
            warned.add(about)
            warn(message)

    for start in range(0, len(files), BATCH_SIZE):
        pixels: dict[int, NDArray[np.uint8]] = {}
        for i, path in enumerate(files[start : start + BATCH_SIZE], start):
            try:
                with open_image(path) as image:
                    (width, height), mode = image.size, image.mode
                pixels[i] = read_pixels(path, format)
            except BadInput as error:
                warn(str(error))
                continue
            if (width, height) != (format.width, format.height):
                expected = f"{format.width}×{format.height}"
                warn_once("size", f"{path} is {width}×{height}; images are resized to {expected}")
            if mode in GREY_16_BIT:
                warn_once("depth", f"{path} has 16 bits per pixel; only the upper 8 are used")
        if not pixels:
            continue
        images = np.stack(list(pixels.values()), dtype=np.float32)
        images /= 255
        for i, row in zip(pixels, model.probabilities(images), strict=True):
            likeliest = np.argsort(-row, kind="stable")[:top]
            yield Prediction(files[i], [(classes[c], float(row[c])) for c in likeliest])
