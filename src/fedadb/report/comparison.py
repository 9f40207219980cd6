"""Recorded runs side by side: methods as rows, settings as columns, seeds together."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedadb.core.errors import BadInput
from fedadb.experiment.presets import LEARNING_RATE
from fedadb.report import paper
from fedadb.report.labels import (
    DATASETS,
    METHODS,
    FlatSettings,
    distinct_labels,
    method_names,
    sorted_labels,
    with_scenario,
)
from fedadb.report.recorded_runs import RecordedRun
from fedadb.report.recorded_searches import is_chosen, separate_trials
from fedadb.storage.searches import Search

Cells = Mapping[tuple[str, str], list[RecordedRun]]


@dataclass(frozen=True)
class Comparison:
    """Recorded runs by method and setting."""

    methods: list[str]  # the rows' labels
    settings: list[str]  # the columns' labels
    # The runs of a method in a setting, by seed. A combination without runs has no entry.
    runs: Cells
    # Settings that each method has a value of its own for, such as a tuned learning rate; no label
    # names them. Empty: labels name all that differs.
    method_settings: frozenset[str] = frozenset()
    trials: Sequence[RecordedRun] = ()  # runs whose settings were tried and not chosen: no results
    searches: Sequence[Search] = ()  # what chose the settings of these runs

    def by_method(self, setting: str) -> dict[str, list[RecordedRun]]:
        """The runs in a setting, for each method that has some."""
        return {m: self.runs[m, setting] for m in self.methods if (m, setting) in self.runs}

    def first_run(self, setting: str) -> RecordedRun:
        """One of the runs in the setting. They differ in algorithm, its settings and seed only."""
        return next(iter(self.by_method(setting).values()))[0]

    def search_of(self, method: str, setting: str) -> Search | None:
        """The search that chose the settings of a method in a setting."""
        run = self.runs[method, setting][0]
        return next((search for search in self.searches if is_chosen(run, search)), None)

    @property
    def fedadb(self) -> str | None:
        """FedADB's row, if it is there in one variant."""
        variants = [method for method in self.methods if method.partition(",")[0] == "FedADB"]
        return variants[0] if len(variants) == 1 else None

    @property
    def all_runs(self) -> list[RecordedRun]:
        return [run for seeds in self.runs.values() for run in seeds]


def arrange(runs: Sequence[RecordedRun], methods: Sequence[str] | None = None) -> Comparison:
    """Arrange runs by method and setting. Trials of a search that were not chosen are set apart.

    Runs of one row and one column have equal settings, apart from the seed. Labels name what
    differs. The exceptions are the learning rate and all settings that were searched: if every
    method has one value of them in each setting, they belong to the method, and notes name them.

    Args:
        runs: The runs, each experiment once.
        methods: Algorithms as experiments name them, in the order in which rows are wanted. By
            default, rows are in the order of the paper's tables; other methods follow.
    """
    results, trials, searches = separate_trials(runs)
    names = method_names(dict.fromkeys(run.algorithm for run in results))
    own = frozenset({LEARNING_RATE, *(key for search in searches for key in search.space)})
    cells = _cells(results, names, own)
    if not all(map(_have_equal_settings, cells.values())):
        own = frozenset()
        cells = _cells(results, names, own)
        assert all(map(_have_equal_settings, cells.values())), "labels are distinct"
    for (row, column), same in cells.items():
        same.sort(key=lambda run: run.seed)
        for one, other in pairwise(same):
            if one.seed == other.seed:
                raise BadInput(
                    f"{row} on {column} with seed {one.seed} is given twice: {one.directory} and "
                    f"{other.directory}; leave one out"
                )
    wanted = [names[algorithm] for algorithm in methods or () if algorithm in names]
    return Comparison(
        sorted_labels([row for row, _ in cells], list(dict.fromkeys([*wanted, *METHODS.values()]))),
        sorted_labels([column for _, column in cells], list(DATASETS.values())),
        cells,
        own,
        trials,
        searches,
    )


def _cells(
    runs: Sequence[RecordedRun], names: Mapping[str, str], unnamed: Collection[str]
) -> dict[tuple[str, str], list[RecordedRun]]:
    """The runs by labels of row and column, which do not name the given settings."""
    rows = _row_labels(runs, names, unnamed)
    columns = distinct_labels(
        [run.data_name for run in runs],
        [_other_settings(run, unnamed) for run in runs],
    )
    cells: dict[tuple[str, str], list[RecordedRun]] = {}
    for run, row, column in zip(runs, rows, columns, strict=True):
        cells.setdefault((row, column), []).append(run)
    return cells


def _have_equal_settings(runs: Sequence[RecordedRun]) -> bool:
    return all(run.versioned_settings == runs[0].versioned_settings for run in runs)


def _row_labels(
    runs: Sequence[RecordedRun], names: Mapping[str, str], unnamed: Collection[str]
) -> list[str]:
    """A label per run: its method, and the settings that distinguish variants of it."""
    methods = [names[run.algorithm] for run in runs]
    settings = [_algorithm_settings(run, unnamed) for run in runs]
    labels = distinct_labels(methods, [_without_dataset_values(run, unnamed) for run in runs])
    variants: dict[tuple[str, str], set[str]] = {}
    for run, label, own in zip(runs, labels, settings, strict=True):
        row_on_dataset = variants.setdefault((label, run.experiment["dataset"]), set())
        row_on_dataset.add(repr(sorted(own.items())))
    if all(len(same) == 1 for same in variants.values()):
        return labels
    return distinct_labels(methods, settings)


def _algorithm_settings(run: RecordedRun, unnamed: Collection[str]) -> FlatSettings:
    settings = run.versioned_settings.items()
    return {k: v for k, v in settings if k.startswith("algorithm.") and k not in unnamed}


def _without_dataset_values(run: RecordedRun, unnamed: Collection[str]) -> FlatSettings:
    """The algorithm's settings, with the paper's general value for one that it has per dataset.

    Such a method is one row of the table: FedDecorr has another λ on CIFAR-100.
    """
    settings = _algorithm_settings(run, unnamed)
    on_dataset = paper.settings_on(run.experiment["dataset"], run.algorithm)
    if not on_dataset.items() <= settings.items():
        return settings
    general = paper.settings_for("", run.algorithm)
    return settings | {key: general[key] for key in on_dataset}


def _other_settings(run: RecordedRun, unnamed: Collection[str]) -> FlatSettings:
    settings = run.versioned_settings.items()
    return with_scenario(
        {k: v for k, v in settings if not k.startswith("algorithm.") and k not in unnamed}
    )
