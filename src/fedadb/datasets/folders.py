"""Folders of image files: which there are, and their pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.progress import Progress
from fedadb.datasets.decode import Look, decode


def visible(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


class Labelled(NamedTuple):
    files: list[Path]
    y: Tensor

    def rows(self, which: Tensor) -> "Labelled":
        return Labelled([self.files[row] for row in which.tolist()], self.y[which])


def labelled(folder: Path, names: Sequence[str]) -> Labelled:
    """The files in one subfolder a class, and the class of each."""
    held = [_images(folder / name) for name in names]
    labels = [c for c, files in enumerate(held) for _ in files]
    return Labelled([path for files in held for path in files], torch.tensor(labels))


def decoded(
    root: Path, parts: Sequence[Labelled], look: Look | None, progress: Progress
) -> list[Examples]:
    """The images of each part; all lie in one array, one part after the other."""
    pixels = decode(root, [path for files, _ in parts for path in files], look, progress)
    sizes = [len(files) for files, _ in parts]
    return [Examples(x, y) for x, (_, y) in zip(torch.split(pixels, sizes), parts, strict=True)]


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is missing")
    files = visible(folder)
    if not files:
        raise BadInput(f"{folder} has no images")
    for path in files:
        if path.is_dir():
            raise BadInput(f"{path} is a folder: images lie right in their class's folder")
        if not path.is_file():
            raise BadInput(f"{path} is not a file: move it away")
    return files
