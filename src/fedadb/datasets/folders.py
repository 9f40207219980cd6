"""Folders with one subfolder of image files per class."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.datasets.decode import decode
from fedadb.datasets.images import ImageFormat, has_image_name
from fedadb.progress import Progress


class ImageFiles(NamedTuple):
    """Image files and their labels."""

    files: list[Path]
    y: Tensor  # int64, one label per file

    def rows(self, which: Tensor) -> "ImageFiles":
        """The selected files."""
        return ImageFiles([self.files[row] for row in which.tolist()], self.y[which])


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the subfolders, sorted. Hidden ones and files are ignored, except images."""
    visible = _visible(folder)
    for path in visible:
        if has_image_name(path) and not path.is_dir():
            raise BadInput(f"{path} is not in the folder of a class; move it into one")
    return tuple(path.name for path in visible if path.is_dir())


def image_files(folder: Path, names: Sequence[str]) -> ImageFiles:
    """The files in the subfolders of these names; the label is the name's position."""
    by_class = [_image_files(folder / name) for name in names]
    labels = [c for c, files in enumerate(by_class) for _ in files]
    return ImageFiles(
        [path for files in by_class for path in files], torch.tensor(labels, dtype=torch.int64)
    )


def decode_parts(
    root: Path, parts: Sequence[ImageFiles], format: ImageFormat | None, progress: Progress
) -> list[Examples]:
    """The images of each part; all share one array, one part after the other."""
    pixels = decode(root, [path for files, _ in parts for path in files], format, progress)
    sizes = [len(files) for files, _ in parts]
    return [Examples(x, y) for x, (_, y) in zip(torch.split(pixels, sizes), parts, strict=True)]


def _visible(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is missing")
    files = _visible(folder)
    if not files:
        raise BadInput(f"{folder} has no images")
    for path in files:
        if path.is_dir():
            raise BadInput(f"{path} is a folder; move its images into the folder of their class")
        if not path.is_file():
            raise BadInput(f"{path} is not a regular file; remove it")
    return files
