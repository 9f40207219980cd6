"""Tables in CSV files: their columns, their labels, and the place of each row for errors."""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from fedadb.core.columns import Columns, is_numeric
from fedadb.core.errors import BadInput
from fedadb.datasets.columns import Cell, Numbers, Words, to_number

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


def locate(text: str) -> tuple[Path, str | None]:
    """The file and the label column of `PATH` or `PATH#COLUMN`."""
    marks = [at for at, character in enumerate(text) if character == "#"]
    if not marks or Path(text).is_file():
        return Path(text), None
    # Names of files and of columns may contain the mark.
    at = next((at for at in marks if Path(text[:at]).is_file()), marks[-1])
    return Path(text[:at]), text[at + 1 :]


def read_table(path: Path, label: str, columns: Columns | None = None) -> Table:
    """Read a file whose first row names its columns, one of which has the labels.

    Args:
        path: The file.
        label: The name of the column of the labels.
        columns: The columns to read, and what each becomes; the others are ignored. None: all, by
            the kind of their first cell.
    """
    if not path.is_file():
        raise BadInput(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read_rows(path, label, csv.reader(_lines(path, file), strict=True), columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as CSV in UTF-8: {error}") from error


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise BadInput(f"{path} is not CSV: it has a line of over {MAX_LINE} characters")
        yield line


def _read_rows(path: Path, label: str, reader: Iterator[list[str]], given: Columns | None) -> Table:
    header = _header(path, label, next(reader, []))
    wanted = [name for name in header if name != label] if given is None else sorted(given)
    _require_columns(path, label, header, wanted)
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
        labels.add(by_column[header.index(label)], rows)
        cells_of = {name: by_column[header.index(name)] for name in wanted}
        if not all_rows:
            columns = [_column(path, *both, given) for both in cells_of.items()]
        for column in columns:
            column.add(cells_of[column.name], rows)
        all_rows += rows
        require_memory(path, len(all_rows) * len(header))
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
    return header


def _require_columns(path: Path, label: str, header: list[str], wanted: list[str]) -> None:
    if not wanted:
        raise BadInput(f"{path} has no column besides {label!r}")
    if label in wanted:
        raise BadInput(f"deployment.columns.{label}: is the column of the labels in {path}")
    if missing := [name for name in wanted if name not in header]:
        raise BadInput(f"{path} has no column {missing[0]!r}, which deployment.columns names")


def _column(path: Path, name: str, cells: Sequence[str], given: Columns | None) -> Words | Numbers:
    """An empty column of the given kind, or of the kind of its first cell."""
    is_word = to_number(cells[0]) is None if given is None else not is_numeric(given[name])
    return Words(path, name, MAX_CATEGORIES) if is_word else Numbers(path, name)


def class_labels(table: Table) -> tuple[tuple[str, ...], Tensor]:
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


def require_memory(path: Path, values: int) -> None:
    """Raise BadInput if a table has too many values."""
    if values > MAX_VALUES:
        raise BadInput(f"{path} is too large: it has over {MAX_VALUES} values; use npz:PATH")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
