"""From checked examples to a dataset: class names, training and test set, preprocessing."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedadb.core.data import DataSpec, Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Bounded, Transform
from fedadb.datasets.arrays import check_examples, is_image_shape, noun, stratified_split
from fedadb.datasets.folders import ImageFiles

Part = TypeVar("Part", Examples, ImageFiles)


def to_splits(source: object, parts: Sequence[Examples], names: Sequence[str] | None) -> Splits:
    """A dataset of training and test examples, or of one undivided part.

    Args:
        source: Names the data in errors.
        parts: Training and test examples; of a single part, a fixed fifth of each class is for
            testing.
        names: Of the classes; None: the labels are their names.
    """
    names = number_classes(source, parts) if names is None else tuple(names)
    check_names(source, names, at_least=2)
    check_examples(source, parts, len(names))
    return complete_splits(source, names, *divide(parts, len(names)))


def complete_splits(
    source: object, names: tuple[str, ...], train: Examples, test: Examples
) -> Splits:
    """A dataset whose preprocessing follows from its training examples."""
    if not len(test.y):
        raise BadInput(
            f"{source} has too few {noun(train.x)} per class to set some aside for testing"
        )
    if not is_image_shape(train.x.shape[1:]):
        return Splits(train, test, names, Bounded.around(train.x))
    channels = train.x.shape[1]
    return Splits(train, test, names, Transform(mean=(0.5,) * channels, std=(0.5,) * channels))


def divide(parts: Sequence[Part], classes: int) -> tuple[Part, Part]:
    """Training and test part; of undivided data, a fixed fifth of each class is for testing."""
    if len(parts) == 1:
        train, test = (parts[0].rows(rows) for rows in stratified_split(parts[0].y, classes))
        return train, test
    train, test = parts
    return train, test


def number_classes(source: object, parts: Sequence[Examples]) -> tuple[str, ...]:
    """The labels as class names; each number from 0 to the highest must occur."""
    labels = torch.cat([part.y for part in parts])
    highest = int(labels.max())
    if highest >= len(labels):
        raise BadInput(
            f"{source}: label {highest} is higher than the number of rows; "
            "number the classes from 0"
        )
    if missing := sorted(set(range(highest + 1)) - set(labels.tolist())):
        raise BadInput(
            f"{source}: no row has label {missing[0]}; number the classes from 0 without gaps, or "
            "name all of them in `classes`"
        )
    return tuple(str(c) for c in range(highest + 1))


def check_names(source: object, names: Sequence[str], at_least: int) -> None:
    """Raise BadInput unless there are enough class names, all different and printable."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(f"{source} has two classes with the name {name!r}")
        if not name.isprintable():
            raise BadInput(f"{source} has a class {name!r}; use printable characters only")
        seen.add(name)
    if len(names) < at_least:
        classes = "class" if len(names) == 1 else "classes"
        raise BadInput(f"{source} has {len(names)} {classes}; it needs at least {at_least}")


def labels_in(spec: DataSpec, source: object, names: Sequence[str]) -> Tensor:
    """The federation's label of each of these classes."""
    for name in names:
        if name not in spec.classes:
            known = ", ".join(spec.classes)
            raise BadInput(f"{source} has a class {name!r}; the federation's are {known}")
    return torch.tensor([spec.classes.index(name) for name in names], dtype=torch.int64)
