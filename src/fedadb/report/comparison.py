"""Runs side by side: a row a method, a column a setting, and in each place the seeds."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment.presets import scenario
from fedadb.report.runs import Run

METHODS = {
    name.lower(): name
    for name in ("FedAvg", "FedDyn", "FedASAM", "FedNTD", "FedGELA", "FedExP", "FedLMD",
                 "FedDecorr", "FedACG", "FedSOL", "FedADB", "FedProx")
}  # fmt: skip
DATASETS = {
    "svhn": "SVHN", "cinic10": "CINIC-10", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100",
    "organamnist": "OrganAMNIST", "pathmnist": "PathMNIST", "tissuemnist": "TissueMNIST",
    "pacs": "PACS", "digits": "digits",
}  # fmt: skip
SYMBOLS = {"alpha": "α", "participation": "ρ", "clients": "K"}

# In which order settings are tried when columns are to be told apart.
FIRST = ("dataset", "scenario", "federation.partition.alpha")

# Of the methods as they come; FedADB has red to itself.
PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#edc948", "#8cd17d",
           "#79706e", "#a0cbe8", "#d4a6c8", "#499894", "#ffbe7d", "#1f4e79", "#7f3c8d", "#3f681c",
           "#b6992d", "#d37295", "#5f9ed1", "#c49c94")  # fmt: skip
RED = "#d62728"

Settings = dict[str, Any]


@dataclass(frozen=True)
class Board:
    """All runs, each at its method and setting."""

    rows: list[str]
    columns: list[str]
    at: Mapping[tuple[str, str], list[Run]]  # by seed; nothing where nothing was run

    def cells(self, column: str) -> dict[str, list[Run]]:
        """The runs of a setting by method."""
        return {row: self.at[row, column] for row in self.rows if (row, column) in self.at}


def arrange(runs: Sequence[Run]) -> Board:
    """Never are two settings taken for one: whatever differs is told in a label."""
    methods = [_part(run, of_algorithm=True) for run in runs]
    settings = [with_scenario(_part(run, of_algorithm=False)) for run in runs]
    rows, columns = labels(methods, method_name), labels(settings, dataset_name)
    at: dict[tuple[str, str], list[Run]] = {}
    for run, row, column in zip(runs, rows, columns, strict=True):
        at.setdefault((row, column), []).append(run)
    for (row, column), cell in at.items():
        cell.sort(key=lambda run: run.seed)
        assert all(run.settings == cell[0].settings for run in cell), "labels tell all apart"
        for one, other in pairwise(cell):
            if one.seed == other.seed:
                raise BadInput(
                    f"{row} on {column} with seed {one.seed} is there twice: {one.directory} and "
                    f"{other.directory}; leave one out"
                )
    return Board(
        _ordered(rows, list(METHODS.values())), _ordered(columns, list(DATASETS.values())), at
    )


def colours(board: Board) -> dict[str, str]:
    """A colour a method, the same wherever it is shown."""
    others = [row for row in board.rows if row != "FedADB"]
    found = {row: PALETTE[i % len(PALETTE)] for i, row in enumerate(others)}
    return {row: found.get(row, RED) for row in board.rows}


def method_name(settings: Settings) -> str:
    name = str(settings["algorithm.name"])
    return METHODS.get(name, name)


def dataset_name(settings: Settings) -> str:
    name = str(settings["dataset"])
    return DATASETS.get(name, name.rpartition("/")[2])


def short(key: str, value: Any) -> str:
    """`α=0.1`, `epochs=5`."""
    if key == "scenario":
        return str(value)
    name = key.rpartition(".")[2]
    return f"{SYMBOLS.get(name, name)}={f'{value:g}' if isinstance(value, float) else value}"


def _in_full(key: str, value: Any) -> str:
    return f"{key.rpartition('.')[2]}={value!r}"


def _part(run: Run, of_algorithm: bool) -> Settings:
    return {k: v for k, v in run.settings.items() if k.startswith("algorithm.") == of_algorithm}


def with_scenario(settings: Settings) -> Settings:
    """Clients and participation under one name, if they have one."""
    name = scenario(settings)
    if name is None:
        return settings
    rest = {k: v for k, v in settings.items() if not k.endswith((".clients", ".participation"))}
    return {**rest, "scenario": name}


def labels(all_settings: Sequence[Settings], name: Callable[[Settings], str]) -> list[str]:
    """A name for each, and as many of its settings as are needed to tell all that differ apart."""
    made = [name(settings) for settings in all_settings]
    keys = dict.fromkeys([*FIRST, *(key for settings in all_settings for key in settings)])
    for key in keys:
        values: dict[str, set[str]] = {}
        for label, settings in zip(made, all_settings, strict=True):
            values.setdefault(label, set()).add(repr(settings.get(key)))
        given = [settings[key] for settings in all_settings if key in settings]
        alike = len({short(key, v) for v in given}) < len({repr(v) for v in given})
        tell = _in_full if alike else short
        made = [
            f"{label}, {tell(key, settings[key])}"
            if len(values[label]) > 1 and key in settings
            else label
            for label, settings in zip(made, all_settings, strict=True)
        ]
    return made


def _ordered(labels: Sequence[str], known: Sequence[str]) -> list[str]:
    """As the paper lists them, then others; variants of one by their numbers."""

    def place(label: str) -> tuple[int, list[tuple[bool, float, str]]]:
        name, _, variant = label.partition(", ")
        words = re.split(r"[=, ]+", variant)
        numbers = [_number(word) for word in words]
        return (known.index(name) if name in known else len(known)), [
            (n is None, n or 0, word) for n, word in zip(numbers, words, strict=True)
        ]

    return sorted(dict.fromkeys(labels), key=place)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
