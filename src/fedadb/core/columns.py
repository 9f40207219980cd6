"""The columns of a table that several sites share: what each becomes as input of a model."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

from fedadb.core.errors import BadInput

# By name: [mean, standard deviation] of a column of numbers, or the categories of another.
Column = Sequence[float] | Sequence[str]
Columns = Mapping[str, Column]
LIMIT = 4.0  # standard deviations: the range of a standardised number for FedADB's anchors


class Inputs(NamedTuple):
    """The range of each input that the columns become, in the order of the columns' names."""

    low: tuple[float, ...]
    high: tuple[float, ...]


def is_numeric(column: Column) -> TypeGuard[Sequence[float]]:
    return not isinstance(column[0], str)


def check_columns(columns: Columns) -> None:
    """Raise BadInput unless each column has mean and standard deviation, or categories."""
    for name, column in columns.items():
        if not column:
            raise BadInput(f"columns.{name} = []: is neither numbers nor categories")
        if is_numeric(column):
            if len(column) != 2 or not all(map(math.isfinite, column)) or column[1] <= 0:
                raise BadInput(
                    f"columns.{name} = {list(column)}: must be [mean, standard deviation], the "
                    "latter above 0"
                )
        elif len(set(column)) < len(column):
            raise BadInput(f"columns.{name}: has a category twice")


def inputs_of(columns: Columns) -> Inputs:
    """A number is one input, and a column of categories one for each, of zeros and ones."""
    low: list[float] = []
    high: list[float] = []
    for _, column in sorted(columns.items()):
        number = is_numeric(column)
        low += [-LIMIT] if number else [0.0] * len(column)
        high += [LIMIT] if number else [1.0] * len(column)
    return Inputs(tuple(low), tuple(high))
