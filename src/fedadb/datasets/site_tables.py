"""Tables at the sites of a federation.

No site has all the rows that a table is standardised on, so the experiment states what each column
becomes (`deployment.columns`). Each site describes its table by numbers of all its training rows,
and `combine` makes the statement from these descriptions.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt
from torch import Tensor

from fedadb.core.columns import Columns, is_numeric
from fedadb.core.data import DataSpec, Examples
from fedadb.core.errors import BadInput
from fedadb.datasets.arrays import stratified_split
from fedadb.datasets.columns import Cell, Numbers, Words
from fedadb.datasets.csv_files import LABEL, Table, class_labels, locate, read_table
from fedadb.datasets.splits import check_names, divide, labels_in

DIGITS = 6  # significant ones of a standard deviation; its mean has as many decimals
ROUNDING = 1e-13  # of a mean: a smaller deviation is that of a constant


class NumberSummary(BaseModel):
    """A column of numbers over the training rows of a site."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    mean: float
    std: NonNegativeFloat


class TableSummary(BaseModel):
    """What a site tells about its table."""

    model_config = ConfigDict(strict=True, extra="forbid")

    rows: PositiveInt  # for training
    classes: list[str]
    numbers: dict[str, NumberSummary]
    categories: dict[str, list[str]]


def load_site_csv(path: Path, spec: DataSpec, columns: Columns) -> tuple[Examples, Examples]:
    """A site's rows to train on and to test on.

    Args:
        path: The file; it may end in `#COLUMN`, the labels'.
        spec: The federation's classes and input shape.
        columns: What each column becomes. Other columns of the file are ignored.
    """
    table = _read(path, columns)
    names, y = class_labels(table)
    labels = labels_in(spec, table.path, names)
    x = torch.cat([_inputs(table, column, columns) for column in table.columns], dim=1)
    if tuple(x.shape[1:]) != spec.shape:
        raise BadInput(
            f"deployment.columns make {x.shape[1]} inputs; the federation's shape is {spec.shape}"
        )
    return divide([Examples(x, labels[y])], len(spec.classes))


def summarise_table(path: Path) -> TableSummary:
    """The summary of the rows of a table that are for training."""
    table = _read(path, None)
    names, y = class_labels(table)
    check_names(table.path, names, at_least=1)
    rows, _ = stratified_split(y, len(names))
    numbers, categories = {}, {}
    for column in table.columns:
        if isinstance(column, Words):
            categories[column.name] = sorted(column.codes)
        else:
            values = column.all()[rows.numpy()]
            with np.errstate(over="ignore"):  # what overflows is found below
                mean, std = float(values.mean()), float(values.std())
            if not math.isfinite(mean + std):
                raise BadInput(
                    f"{table.path}: column {column.name!r} has numbers that are too large"
                )
            numbers[column.name] = NumberSummary(mean=mean, std=std)
    return TableSummary(rows=len(rows), classes=list(names), numbers=numbers, categories=categories)


def combine(
    summaries: Mapping[str, TableSummary],
) -> tuple[list[str], dict[str, list[float] | list[str]]]:
    """The classes of all sites, and the columns as the experiment states them.

    Args:
        summaries: By the name of each site's file, for errors.
    """
    _require_same_columns(summaries)
    first, *_ = summaries.values()
    columns: dict[str, list[float] | list[str]] = {
        name: _pooled([(one.rows, one.numbers[name]) for one in summaries.values()])
        for name in first.numbers
    }
    for name in first.categories:
        columns[name] = sorted(
            {word for one in summaries.values() for word in one.categories[name]}
        )
    return _sorted_classes([one.classes for one in summaries.values()]), columns


def _read(path: Path, columns: Columns | None) -> Table:
    file, label = locate(str(path))
    return read_table(file, label or LABEL, columns)


def _inputs(table: Table, column: Words | Numbers, columns: Columns) -> Tensor:
    given = columns[column.name]
    if isinstance(column, Numbers):
        assert is_numeric(given)
        with np.errstate(over="ignore"):  # what overflows is found below
            x = ((column.all() - given[0]) / given[1]).astype(np.float32)
        if not np.isfinite(x).all():
            raise BadInput(f"{table.path}: column {column.name!r} has numbers that are too large")
        return torch.from_numpy(x)[:, None]
    place = {word: at for at, word in enumerate(given)}
    for word, code in column.codes.items():
        if word not in place:
            row = table.rows[int(np.flatnonzero(column.all() == code)[0])]
            raise Cell(table.path, column.name, row).wrong(
                f"{word!r} is not a category of deployment.columns"
            )
    codes = torch.tensor([place[word] for word in column.codes])[column.all()]
    return torch.nn.functional.one_hot(codes, len(place)).float()


def _require_same_columns(summaries: Mapping[str, TableSummary]) -> None:
    kinds = {
        source: {**dict.fromkeys(one.numbers, "numbers"), **dict.fromkeys(one.categories, "words")}
        for source, one in summaries.items()
    }
    (first, expected), *others = kinds.items()
    for source, found in others:
        for name in sorted(expected.keys() | found.keys()):
            if name not in found or name not in expected:
                here, there = (first, source) if name in expected else (source, first)
                raise BadInput(
                    f"{there} has no column {name!r}, which {here} has; give all files the same "
                    "columns"
                )
            if found[name] != expected[name]:
                raise BadInput(
                    f"column {name!r} has {expected[name]} in {first} and {found[name]} in {source}"
                )


def _pooled(parts: Sequence[tuple[int, NumberSummary]]) -> list[float]:
    """Mean and standard deviation over the rows of all sites; 1 for a column that is constant."""
    rows = sum(n for n, _ in parts)
    mean = sum(n * one.mean for n, one in parts) / rows
    std = math.sqrt(sum(n * (one.std**2 + (one.mean - mean) ** 2) for n, one in parts) / rows)
    if std <= ROUNDING * abs(mean):
        std = 1.0
    decimals = DIGITS - 1 - math.floor(math.log10(std))
    return [round(mean, decimals), round(std, decimals)]


def _sorted_classes(given: Sequence[Sequence[str]]) -> list[str]:
    """All class names: numbers as numbers, all others as words."""
    names = {name for one in given for name in one}
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)
