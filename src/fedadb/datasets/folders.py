"""Folders of image files: which there are, and their pixels."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.track import Track
from fedadb.datasets.decode import Look, decode


def visible(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


def labelled(folder: Path, names: Sequence[str]) -> tuple[list[Path], Tensor]:
    """The files in one subfolder a class, and the class of each."""
    held = [_images(folder / name) for name in names]
    labels = [c for c, files in enumerate(held) for _ in files]
    return [path for files in held for path in files], torch.tensor(labels)


def train_and_test(
    root: Path,
    files: Sequence[Path],
    labels: Tensor,
    parts: tuple[Tensor, Tensor],
    look: Look | None,
    track: Track,
) -> tuple[Examples, Examples]:
    """The images at the rows of either part; both lie in one array, one after the other."""
    order = torch.cat(parts)
    pixels = decode(root, [files[row] for row in order.tolist()], look, track)
    examples, n = Examples(pixels, labels[order]), len(parts[0])
    return examples.rows(slice(n)), examples.rows(slice(n, None))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is missing")
    files = visible(folder)
    if not files:
        raise BadInput(f"{folder} has no images")
    if nested := [p for p in files if p.is_dir()]:
        raise BadInput(f"{nested[0]} is a folder: images lie right in their class's folder")
    return files
