"""A site's own images, read for the federation's task: they may lack classes, not have others."""

from collections.abc import Sequence
from pathlib import Path

import torch

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.task import Task
from fedadb.progress import no_progress
from fedadb.datasets import arrays
from fedadb.datasets.decode import Look
from fedadb.datasets.folders import Labelled, decoded, labelled, visible
from fedadb.datasets.split import stratified


def load(data: str, task: Task) -> tuple[Examples, Examples]:
    """Images to train on and to test on, by `npz:PATH` or `folder:PATH`.

    Where they are not divided, a fifth of each class is for testing.
    """
    kind, _, path = data.partition(":")
    if kind not in READ or not path:
        raise BadInput(f"data = {data!r}: must be npz:PATH or folder:PATH")
    parts = READ[kind](Path(path).expanduser(), task)
    for part in parts:
        if tuple(part.x.shape[1:]) != task.shape:
            raise BadInput(
                f"{path} has images of shape {tuple(part.x.shape[1:])}; the federation's are "
                f"{task.shape} (channels, height, width)"
            )
    if len(parts) == 1:
        parts = [parts[0].rows(rows) for rows in stratified(parts[0].y, len(task.classes))]
    train, test = parts
    if not len(train.y):
        raise BadInput(f"{path} has no images to train on")
    return train, test


def _npz(path: Path, task: Task) -> Sequence[Examples]:
    """x_train, y_train, x_test, y_test; or x and y. `classes` names the labels, if it is there."""
    stored = arrays.read(path)
    named = [("x", "y")] if "x" in stored else [("x_train", "y_train"), ("x_test", "y_test")]
    parts = [arrays.images(path, stored, x, y) for x, y in named]
    if "classes" not in stored:
        arrays.check(path, parts, len(task.classes))
        return parts
    names = [str(name) for name in stored["classes"].reshape(-1)]
    arrays.check(path, parts, len(names))
    place = torch.tensor([_place(path, name, task) for name in names])
    return [Examples(part.x, place[part.y]) for part in parts]


def _folder(path: Path, task: Task) -> Sequence[Examples]:
    """A subfolder a class; or train/ and test/ with such subfolders. All are made to one size."""
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    divided = (path / "train").is_dir()
    roots = [path / "train", path / "test"] if divided else [path]
    parts = []
    for root in roots:
        if not root.is_dir():
            raise BadInput(f"{path} has train/ but no test/")
        names = [p.name for p in visible(root) if p.is_dir()]
        found = labelled(root, names)
        place = torch.tensor([_place(root, name, task) for name in names], dtype=torch.int64)
        parts.append(Labelled(found.files, place[found.y]))
    channels, height, width = task.shape
    look = Look(width, height, "L" if channels == 1 else "RGB")
    return decoded(path, parts, look, no_progress)


READ = {"npz": _npz, "folder": _folder}


def _place(path: Path, name: str, task: Task) -> int:
    if name not in task.classes:
        known = ", ".join(task.classes)
        raise BadInput(f"{path} has a class {name!r} that the federation does not know: {known}")
    return task.classes.index(name)
