"""Anyone's own data: an .npz of arrays, or a folder of images."""

from pathlib import Path

import torch
from PIL import Image

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.progress import Progress
from fedadb.core.transform import Transform
from fedadb.datasets import arrays
from fedadb.datasets.folders import decoded, labelled, visible
from fedadb.datasets.split import stratified


def load_npz(path: Path, progress: Progress) -> Splits:
    """x_train, y_train, x_test, y_test; or x and y, of which a fifth is held out.

    The names of MedMNIST's files, train_images and so on, do as well; their validation images
    are left out. An optional array `classes` names the classes.
    """
    stored = arrays.read(path)
    names_of = {"x": [("x", "y")], "train_images": _pairs("{}_images", "{}_labels")}
    given = next((names_of[first] for first in names_of if first in stored), _pairs("x_{}", "y_{}"))
    whole = [arrays.images(path, stored, x, y) for x, y in given]
    if "classes" in stored:
        names = tuple(str(name) for name in stored["classes"].reshape(-1))
    else:
        highest = max(int(part.y.max()) for part in whole)
        if highest >= sum(len(part.y) for part in whole):
            raise BadInput(f"{path}: label {highest} is higher than there are rows; number from 0")
        names = tuple(str(c) for c in range(highest + 1))
        held = set(torch.cat([part.y for part in whole]).tolist())
        if absent := sorted(set(range(highest + 1)) - held):
            raise BadInput(
                f"{path}: no row has label {absent[0]}; number the classes from 0 without gaps, or "
                "name them all in an array `classes`"
            )
    _require_two(path, names)
    arrays.check(path, whole, len(names))
    if len(whole) == 1:
        whole = [whole[0].rows(rows) for rows in stratified(whole[0].y, len(names))]
    return _splits(path, names, *whole)


def load_folder(path: Path, progress: Progress) -> Splits:
    """One subfolder per class; or train/ and test/ with such subfolders."""
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    divided = (path / "train").is_dir()
    if divided and not (path / "test").is_dir():
        raise BadInput(f"{path} has train/ but no test/")
    root = path / "train" if divided else path
    names = tuple(p.name for p in visible(root) if p.is_dir())
    for loose in visible(root):
        if loose.suffix.lower() in Image.registered_extensions():
            raise BadInput(f"{loose} is in no class's folder: move it into one")
    _require_two(path, names)
    whole = labelled(root, names)
    if divided:
        if strangers := {p.name for p in visible(path / "test") if p.is_dir()} ^ set(names):
            raise BadInput(f"{path}: class {min(strangers)!r} is in only one of train and test")
        parts = [whole, labelled(path / "test", names)]
    else:
        parts = [whole.rows(rows) for rows in stratified(whole.y, len(names))]
    return _splits(path, names, *decoded(path, parts, None, progress))


def _pairs(x: str, y: str) -> list[tuple[str, str]]:
    return [(x.format(part), y.format(part)) for part in ("train", "test")]


def _require_two(path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{path} has two classes called {name!r}")
        if not name.isprintable():
            raise BadInput(f"{path} has a class called {name!r}: give it a name of plain text")
    if len(names) < 2:
        plural = "class" if len(names) == 1 else "classes"
        raise BadInput(f"{path} has {len(names)} {plural}; a classifier needs at least two")


def _splits(path: Path, names: tuple[str, ...], train: Examples, test: Examples) -> Splits:
    for part, images in (("train", train), ("test", test)):
        if not len(images.y):
            raise BadInput(f"{path} leaves no images to {part} on")
    channels = train.x.shape[1]
    return Splits(train, test, names, Transform(mean=(0.5,) * channels, std=(0.5,) * channels))
