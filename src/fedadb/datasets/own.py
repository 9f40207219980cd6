"""Anyone's own data: an .npz of arrays, or a folder of images."""

from collections import Counter
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from fedadb.core.data import Images, Splits
from fedadb.core.errors import BadInput
from fedadb.core.look import Look
from fedadb.datasets import arrays
from fedadb.datasets.split import stratified

SMALLEST = 28  # what the smallest model takes
GREY = ("1", "L", "LA", "I", "I;16", "F")


def load_npz(path: Path) -> Splits:
    """x_train, y_train, x_test, y_test; or x and y, of which a fifth is held out.

    An optional array `classes` names the classes.
    """
    stored = arrays.read(path)
    if "x" in stored or "y" in stored:
        whole = [arrays.images(path, stored, "x", "y")]
    else:
        whole = [
            arrays.images(path, stored, f"x_{part}", f"y_{part}") for part in ("train", "test")
        ]
    if "classes" in stored:
        names = tuple(str(name) for name in stored["classes"])
    else:
        names = tuple(str(c) for c in range(max(int(part.y.max()) for part in whole) + 1))
    _require_two(path, names)
    arrays.check(path, whole, len(names))
    return _splits(path, whole, names)


def load_folder(path: Path) -> Splits:
    """One subfolder per class; or train/ and test/ with such subfolders."""
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder")
    divided = (path / "train").is_dir() and (path / "test").is_dir()
    roots = [path / "train", path / "test"] if divided else [path]
    names = tuple(sorted(p.name for p in roots[0].iterdir() if p.is_dir()))
    _require_two(path, names)
    files = [[(p, c) for c, name in enumerate(names) for p in _files(r / name)] for r in roots]
    flat = [p for part in files for p, _ in part]
    decoded = dict(zip(flat, _decode(flat), strict=True))
    whole = [
        Images(torch.stack([decoded[p] for p, _ in part]), torch.tensor([c for _, c in part]))
        for part in files
    ]
    return _splits(path, whole, names)


def _require_two(path: Path, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        plural = "class" if len(names) == 1 else "classes"
        raise BadInput(f"{path} has {len(names)} {plural}; a classifier needs at least two")


def _splits(path: Path, whole: list[Images], names: tuple[str, ...]) -> Splits:
    train, test = whole if len(whole) == 2 else stratified(whole[0], len(names))
    for part, images in (("train", train), ("test", test)):
        if not len(images.y):
            raise BadInput(f"{path} leaves no images to {part} on")
    channels = train.x.shape[1]
    return Splits(train, test, names, Look(mean=(0.5,) * channels, std=(0.5,) * channels))


def _files(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    if not files:
        raise BadInput(f"{folder} has no images")
    return files


def _decode(files: list[Path]) -> list[torch.Tensor]:
    """The images in one size, the most common among them; in colour if any is."""
    opened: list[Image.Image] = []
    for path in files:
        try:
            with Image.open(path) as image:
                image.load()
                opened.append(image)
        except (UnidentifiedImageError, OSError) as error:
            raise BadInput(f"{path} cannot be read as an image: {error}") from error
    sizes = Counter(image.size for image in opened)
    width, height = max(sizes, key=lambda size: (sizes[size], -size[0] * size[1]))
    size = max(width, SMALLEST), max(height, SMALLEST)
    mode = "L" if all(image.mode in GREY for image in opened) else "RGB"
    return [
        torch.from_numpy(np.array(image.convert(mode).resize(size))).view(size[1], size[0], -1)
        .permute(2, 0, 1)
        for image in opened
    ]  # fmt: skip
