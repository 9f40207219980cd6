"""Tables as data for a simulation: numbers are standardised, categories become one column each."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.datasets.arrays import stratified_split
from fedadb.datasets.columns import Cell, Numbers, Words, to_number
from fedadb.datasets.csv_files import (
    LABEL,
    Table,
    class_labels,
    locate,
    read_table,
    require_memory,
)
from fedadb.datasets.splits import check_names, complete_splits
from fedadb.progress import Progress, no_progress


def load_csv(path: Path, progress: Progress = no_progress) -> Splits:
    """Read a table whose first row names its columns; `path` may end in `#COLUMN`, the labels'.

    A column whose first cell is a number is one of numbers: it is standardised by the mean and
    standard deviation of the training rows. All others are categories: each category of the
    training rows becomes a column of zeros and ones. A fixed fifth of each class is for testing.
    """
    file, label = locate(str(path))
    table = read_table(file, label or LABEL)
    names, y = class_labels(table)
    check_names(file, names, at_least=2)
    train, test = stratified_split(y, len(names))
    x = _features(table, torch.cat([train, test]).numpy(), len(train))
    return complete_splits(
        file,
        names,
        Examples(x[: len(train)], y[train]),
        Examples(x[len(train) :], y[test]),
    )


def _features(table: Table, order: NDArray[np.int64], training: int) -> Tensor:
    """All rows in the given order, of which the first `training` ones are for training."""
    parts: list[Tensor] = []
    for column in table.columns:
        if isinstance(column, Numbers):
            parts.append(_standardise(column, order, training))
        else:
            parts.append(_one_hot(table, column, order, training))
        require_memory(table.path, sum(part.numel() for part in parts))
    return torch.cat(parts, dim=1)


def _standardise(column: Numbers, order: NDArray[np.int64], training: int) -> Tensor:
    values = column.all()[order]
    seen = values[:training]
    with np.errstate(all="ignore"):  # what overflows is found below
        constant = seen.min() == seen.max()
        mean, std = (seen[0], 1.0) if constant else (seen.mean(), seen.std())
        x = ((values - mean) / std).astype(np.float32)
    if not (np.isfinite(std) and np.isfinite(x).all()):
        raise BadInput(f"{column.path}: column {column.name!r} has numbers that are too large")
    return torch.from_numpy(x)[:, None]


def _one_hot(table: Table, column: Words, order: NDArray[np.int64], training: int) -> Tensor:
    words = list(column.codes)
    if sum(to_number(word) is not None for word in words) * 2 > len(words):
        raise Cell(table.path, column.name, table.rows[0]).wrong(
            f"{words[0]!r} is not a number, but most values of the column are"
        )
    codes = column.all()[order]
    known = sorted(set(codes[:training].tolist()), key=words.__getitem__)
    require_memory(table.path, len(codes) * len(known))
    place = np.full(len(words), -1)
    place[known] = np.arange(len(known))
    unseen = np.flatnonzero(place[codes] < 0)
    if len(unseen):
        row = min(table.rows[int(order[i])] for i in unseen)
        word = words[int(column.all()[table.rows.index(row)])]
        raise Cell(table.path, column.name, row).wrong(
            f"{word!r} is a category of no training row; group rare categories, or remove the row"
        )
    x = torch.zeros(len(codes), len(known))
    x[torch.arange(len(codes)), torch.from_numpy(place[codes])] = 1
    return x
