"""Anyone's own data: an .npz of arrays, or a folder of images."""

from pathlib import Path

import torch

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets import arrays
from fedadb.datasets.decode import decode
from fedadb.datasets.split import stratified


def load_npz(path: Path) -> Splits:
    """x_train, y_train, x_test, y_test; or x and y, of which a fifth is held out.

    The names of MedMNIST's files, train_images and so on, do as well; their validation images
    are left out. An optional array `classes` names the classes.
    """
    stored = arrays.read(path)
    if "x" in stored or "y" in stored:
        whole = [arrays.images(path, stored, "x", "y")]
    elif "train_images" in stored:
        whole = [
            arrays.images(path, stored, f"{part}_images", f"{part}_labels")
            for part in ("train", "test")
        ]
    else:
        whole = [
            arrays.images(path, stored, f"x_{part}", f"y_{part}") for part in ("train", "test")
        ]
    if "classes" in stored:
        names = tuple(str(name) for name in stored["classes"].reshape(-1))
    else:
        highest = max(int(part.y.max()) for part in whole)
        if highest >= sum(len(part.y) for part in whole):
            raise BadInput(f"{path}: label {highest} is higher than there are rows; number from 0")
        names = tuple(str(c) for c in range(highest + 1))
    _require_two(path, names)
    arrays.check(path, whole, len(names))
    return _splits(path, whole, names)


def load_folder(path: Path) -> Splits:
    """One subfolder per class; or train/ and test/ with such subfolders."""
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    divided = (path / "train").is_dir()
    if divided and not (path / "test").is_dir():
        raise BadInput(f"{path} has train/ but no test/")
    roots = [path / "train", path / "test"] if divided else [path]
    names = tuple(p.name for p in _visible(roots[0]) if p.is_dir())
    _require_two(path, names)
    for root in roots[1:]:
        if strangers := {p.name for p in _visible(root) if p.is_dir()} ^ set(names):
            raise BadInput(f"{path}: class {min(strangers)!r} is in only one of train and test")
    files = [[(p, c) for c, name in enumerate(names) for p in _files(r / name)] for r in roots]
    pixels = iter(decode([p for part in files for p, _ in part]))
    whole = [
        Examples(torch.stack([next(pixels) for _ in part]), torch.tensor([c for _, c in part]))
        for part in files
    ]
    return _splits(path, whole, names)


def _require_two(path: Path, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        plural = "class" if len(names) == 1 else "classes"
        raise BadInput(f"{path} has {len(names)} {plural}; a classifier needs at least two")


def _splits(path: Path, whole: list[Examples], names: tuple[str, ...]) -> Splits:
    train, test = whole if len(whole) == 2 else stratified(whole[0], len(names))
    for part, images in (("train", train), ("test", test)):
        if not len(images.y):
            raise BadInput(f"{path} leaves no images to {part} on")
    channels = train.x.shape[1]
    return Splits(train, test, names, Transform(mean=(0.5,) * channels, std=(0.5,) * channels))


def _visible(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    files = _visible(folder)
    if not files:
        raise BadInput(f"{folder} has no images")
    if nested := [p for p in files if p.is_dir()]:
        raise BadInput(f"{nested[0]} is a folder: images lie right in their class's folder")
    return files
