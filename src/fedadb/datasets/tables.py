"""Tables in CSV files: numbers are standardised, and categories become one column each."""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedadb.core.data import Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.datasets.arrays import stratified_split
from fedadb.datasets.columns import Cell, Numbers, Words, to_number
from fedadb.datasets.splits import check_names, complete_splits
from fedadb.progress import Progress, no_progress

LABEL = "label"  # the column of the labels, if the user names none
CHUNK = 10_000  # rows that are converted at a time
MAX_LINE = 10_000_000  # characters
MAX_CATEGORIES = 1000  # of one column
MAX_CLASSES = 10_000
MAX_VALUES = 1 << 29  # of all rows: 2 GB as float32


class Table(NamedTuple):
    """The columns of a file, and the row of each example in it."""

    path: Path
    labels: Words
    columns: list[Words | Numbers]
    rows: list[int]


def load_csv(path: Path, progress: Progress = no_progress) -> Splits:
    """Read a table whose first row names its columns; `path` may end in `#COLUMN`, the labels'.

    A column whose first cell is a number is one of numbers: it is standardised by the mean and
    standard deviation of the training rows. All others are categories: each category of the
    training rows becomes a column of zeros and ones. A fixed fifth of each class is for testing.
    """
    file, label = locate(str(path))
    table = _read(file, label or LABEL)
    names, y = _classes(table)
    check_names(file, names, at_least=2)
    train, test = stratified_split(y, len(names))
    x = _features(table, torch.cat([train, test]).numpy(), len(train))
    return complete_splits(
        file,
        names,
        Examples(x[: len(train)], y[train]),
        Examples(x[len(train) :], y[test]),
    )


def locate(text: str) -> tuple[Path, str | None]:
    """The file and the label column of `PATH` or `PATH#COLUMN`."""
    marks = [at for at, character in enumerate(text) if character == "#"]
    if not marks or Path(text).is_file():
        return Path(text), None
    # Names of files and of columns may contain the mark.
    at = next((at for at in marks if Path(text[:at]).is_file()), marks[-1])
    return Path(text[:at]), text[at + 1 :]


def _read(path: Path, label: str) -> Table:
    if not path.is_file():
        raise BadInput(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read_rows(path, label, csv.reader(_lines(path, file), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as CSV in UTF-8: {error}") from error


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise BadInput(f"{path} is not CSV: it has a line of over {MAX_LINE} characters")
        yield line


def _read_rows(path: Path, label: str, reader: Iterator[list[str]]) -> Table:
    header = _header(path, label, next(reader, []))
    at = header.index(label)
    labels = Words(path, label, MAX_CLASSES)
    columns: list[Words | Numbers] = []
    all_rows: list[int] = []
    for rows, chunk in _chunks(reader):
        for row, cells in zip(rows, chunk, strict=True):
            if len(cells) != len(header):
                raise BadInput(
                    f"{path}: row {row} has {_count(len(cells), 'cell')}, and the header "
                    f"{len(header)}"
                )
        by_column = list(zip(*chunk, strict=True))
        labels.add(by_column.pop(at), rows)
        if not all_rows:
            names = [name for name in header if name != label]
            columns = [_column(path, *both) for both in zip(names, by_column, strict=True)]
        for column, values in zip(columns, by_column, strict=True):
            column.add(values, rows)
        all_rows += rows
        _require_memory(path, len(all_rows) * len(header))
    if not all_rows:
        raise BadInput(f"{path} has no rows below its header")
    return Table(path, labels, columns, all_rows)


def _chunks(reader: Iterator[list[str]]) -> Iterator[tuple[list[int], list[list[str]]]]:
    """The rows below the header, some thousands at a time, with their numbers; no blank ones."""
    first = 2
    while chunk := list(islice(reader, CHUNK)):
        rows = [row for row, cells in enumerate(chunk, first) if cells]
        first += len(chunk)
        if rows:
            yield rows, [cells for cells in chunk if cells]


def _header(path: Path, label: str, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    known = ", ".join(header[:20]) + (", …" if len(header) > 20 else "")
    if label not in header:
        raise BadInput(
            f"{path} has no column {label!r}; its columns are {known or 'none'}; name the one of "
            "the labels: csv:PATH#COLUMN"
        )
    for at, name in enumerate(header):
        if not name:
            raise BadInput(f"{path}: column {at + 1} has no name; name it, or remove row numbers")
        if name in header[:at]:
            raise BadInput(f"{path} has two columns with the name {name!r}")
    if len(header) == 1:
        raise BadInput(f"{path} has no column besides {label!r}")
    return header


def _column(path: Path, name: str, cells: Sequence[str]) -> Words | Numbers:
    """An empty column of the kind of its first cell."""
    is_word = to_number(cells[0]) is None
    return Words(path, name, MAX_CATEGORIES) if is_word else Numbers(path, name)


def _classes(table: Table) -> tuple[tuple[str, ...], Tensor]:
    """The class names in order, and the label of each row; equal numbers are one class."""
    words = table.labels.codes
    codes = table.labels.all()
    numbers = [number for word in words if (number := to_number(word)) is not None]
    if len(numbers) < len(words):
        order = {name: c for c, name in enumerate(sorted(words))}
        by_code = np.array([order[word] for word in words])
        return tuple(order), torch.from_numpy(by_code[codes])
    for code, number in enumerate(numbers):
        if not math.isfinite(number):
            row = table.rows[int(np.flatnonzero(codes == code)[0])]
            raise Cell(table.path, table.labels.name, row).wrong("is not a finite number")
    values, by_code = np.unique(numbers, return_inverse=True)
    names = [str(int(v)) if v.is_integer() else repr(v) for v in values.tolist()]
    return tuple(names), torch.from_numpy(by_code[codes])


def _features(table: Table, order: NDArray[np.int64], training: int) -> Tensor:
    """All rows in the given order, of which the first `training` ones are for training."""
    parts: list[Tensor] = []
    for column in table.columns:
        if isinstance(column, Numbers):
            parts.append(_standardise(column, order, training))
        else:
            parts.append(_one_hot(table, column, order, training))
        _require_memory(table.path, sum(part.numel() for part in parts))
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
    _require_memory(table.path, len(codes) * len(known))
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


def _require_memory(path: Path, values: int) -> None:
    if values > MAX_VALUES:
        raise BadInput(f"{path} is too large: it has over {MAX_VALUES} values; use npz:PATH")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
