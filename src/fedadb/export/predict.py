"""What an exported model says to image files."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedadb.core.errors import BadInput
from fedadb.datasets.decode import DEEP, Look, opened, pixels_of
from fedadb.export import onnxfile, weights
from fedadb.export.card import ENDINGS, Card

AT_ONCE = 64  # images that are held and computed together


class Exported(Protocol):
    """A model that was read from its file."""

    card: Card

    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of each image, N × C × H × W in [0, 1], how likely each class is."""
        ...


class Prediction(NamedTuple):
    file: Path
    top: list[tuple[str, float]]  # classes and their probabilities, the likeliest first


def read_model(path: Path) -> Exported:
    if path.is_dir():
        raise BadInput(
            f"{path} is a directory; `fedadb export` makes the model of a run's directory a file"
        )
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"{path} is no exported model: those end in {' or '.join(ENDINGS)}")
    if not path.exists():
        raise BadInput(f"{path} does not exist")
    return onnxfile.Onnx(path) if path.suffix.lower() == ".onnx" else weights.Torch(path)


def find_images(places: Sequence[Path]) -> list[Path]:
    """The files as they are named, and the images in the folders and what is below them."""
    found: list[Path] = []
    for place in places:
        if not place.exists():
            raise BadInput(f"{place} does not exist")
        if not place.is_dir():
            found.append(place)
        elif inside := _below(place):
            found += inside
        else:
            raise BadInput(f"{place} has no images in it, nor in its folders")
    return found


def _below(folder: Path) -> list[Path]:
    known = {end for end, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    files = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    return sorted(p for p in files if p.suffix.lower() in known and not p.name.startswith("."))


def predict(
    model: Exported, files: Sequence[Path], top: int, complain: Callable[[str], None]
) -> Iterator[Prediction]:
    """The likeliest classes of each image; one that cannot be read is complained of and left out.

    Images are made what those of a `folder:` dataset are made: of the model's size and colours.
    """
    classes = model.card.classes
    if top > len(classes):
        raise BadInput(f"--top {top}: the model knows {len(classes)} classes")
    look = _look(model.card)
    told: set[str] = set()

    def tell_once(what: str, message: str) -> None:
        if what not in told:
            told.add(what)
            complain(message)

    for start in range(0, len(files), AT_ONCE):
        pixels: dict[int, NDArray[np.uint8]] = {}
        for i, path in enumerate(files[start : start + AT_ONCE], start):
            try:
                with opened(path) as image:
                    (width, height), mode = image.size, image.mode
                pixels[i] = pixels_of(path, look)
            except BadInput as error:
                complain(str(error))
                continue
            if (width, height) != (look.width, look.height):
                size = f"{look.width}×{look.height}"
                tell_once("size", f"{path} is {width}×{height}; what is not {size} is resized")
            if mode in DEEP:
                tell_once("depth", f"{path} has 16 bits a pixel, of which the upper 8 are seen")
        if not pixels:
            continue
        images = np.stack(list(pixels.values()), dtype=np.float32)
        images /= 255
        for i, row in zip(pixels, model.probabilities(images), strict=True):
            likeliest = np.argsort(-row, kind="stable")[:top]
            yield Prediction(files[i], [(classes[c], float(row[c])) for c in likeliest])


def _look(card: Card) -> Look:
    channels, height, width = card.shape
    if channels not in (1, 3):
        raise BadInput(f"the model takes {channels} channels, and image files have 1 or 3")
    return Look(width, height, "L" if channels == 1 else "RGB")
