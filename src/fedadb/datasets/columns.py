"""The columns of a table: words and numbers, with the place of every cell for errors."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedadb.core.errors import BadInput


class Cell(NamedTuple):
    """The place of a cell, for errors. As in a spreadsheet, the header is row 1."""

    path: Path
    column: str
    row: int

    def wrong(self, reason: str) -> BadInput:
        return BadInput(f"{self.path}: row {self.row}, column {self.column!r}: {reason}")


class Words:
    """A column of words: each different one has a code, in the order of their first rows."""

    def __init__(self, path: Path, name: str, most: int) -> None:
        self.path, self.name, self.most = path, name, most
        self.codes: dict[str, int] = {}
        self.parts: list[NDArray[np.int64]] = []

    def add(self, cells: Sequence[str], rows: Sequence[int]) -> None:
        codes = self.codes
        words = [cell.strip() for cell in cells]
        missing = [w for w in set(words) - codes.keys() if not w or math.isnan(to_number(w) or 0)]
        if missing:
            at = min(map(words.index, missing))
            reason = f"{words[at]} is a missing value" if words[at] else "is empty"
            raise Cell(self.path, self.name, rows[at]).wrong(reason)
        self.parts.append(np.array([codes.setdefault(word, len(codes)) for word in words]))
        if len(codes) > self.most:
            raise BadInput(
                f"{self.path}: column {self.name!r} has more than {self.most} different words; "
                "remove it, or group them"
            )

    def all(self) -> NDArray[np.int64]:
        return np.concatenate(self.parts)


class Numbers:
    """A column of numbers."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.parts: list[NDArray[np.float64]] = []

    def add(self, cells: Sequence[str], rows: Sequence[int]) -> None:
        try:
            values = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            numbers = map(to_number, cells)
            values = np.array([math.nan if number is None else number for number in numbers])
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            word, cell = cells[at].strip(), Cell(self.path, self.name, rows[at])
            if not word:
                raise cell.wrong("is empty")
            if to_number(word) is None:
                raise cell.wrong(
                    f"{word!r} is not a number, but the column starts with one; a column of "
                    "categories must start with a word"
                )
            raise cell.wrong(f"{word} is not a finite number")
        self.parts.append(values)

    def all(self) -> NDArray[np.float64]:
        return np.concatenate(self.parts)


def to_number(word: str) -> float | None:
    """The number, which may be infinite or NaN; None if the word is none."""
    try:
        return float(word)
    except ValueError:
        return None
