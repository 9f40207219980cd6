"""Recorded runs side by side: methods as rows, settings as columns, seeds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedadb.core.errors import BadInput
from fedadb.report import paper
from fedadb.report.labels import (
    DATASETS,
    METHODS,
    FlatSettings,
    dataset_name,
    distinct_labels,
    method_names,
    sorted_labels,
    with_scenario,
)
from fedadb.report.recorded_runs import RecordedRun


@dataclass(frozen=True)
class Comparison:
    """Recorded runs by method and setting."""

    methods: list[str]  # the rows' labels
    settings: list[str]  # the columns' labels
    # The runs of a method in a setting, by seed. A combination without runs has no entry.
    runs: Mapping[tuple[str, str], list[RecordedRun]]

    def by_method(self, setting: str) -> dict[str, list[RecordedRun]]:
        """The runs in a setting, for each method that has some."""
        return {m: self.runs[m, setting] for m in self.methods if (m, setting) in self.runs}

    def first_run(self, setting: str) -> RecordedRun:
        """One of the runs in the setting. They differ in algorithm and seed only."""
        return next(iter(self.by_method(setting).values()))[0]

    @property
    def all_runs(self) -> list[RecordedRun]:
        return [run for seeds in self.runs.values() for run in seeds]


def arrange(runs: Sequence[RecordedRun], methods: Sequence[str] | None = None) -> Comparison:
    """Arrange runs by method and setting.

    Runs that differ in more than their seed never share a row and a column: labels name what
    differs.

    Args:
        runs: The runs, each experiment once.
        methods: Algorithms as experiments name them, in the order in which rows are wanted. By
            default, rows are in the order of the paper's tables; other methods follow.
    """
    names = method_names(dict.fromkeys(run.algorithm for run in runs))
    rows = _row_labels(runs, names)
    columns = distinct_labels(
        [dataset_name(run.experiment["dataset"]) for run in runs],
        [_other_settings(run) for run in runs],
    )
    seeds: dict[tuple[str, str], list[RecordedRun]] = {}
    for run, row, column in zip(runs, rows, columns, strict=True):
        seeds.setdefault((row, column), []).append(run)
    for (row, column), same in seeds.items():
        same.sort(key=lambda run: run.seed)
        versions = [run.versioned_settings for run in same]
        assert all(version == versions[0] for version in versions), "labels are distinct"
        for one, other in pairwise(same):
            if one.seed == other.seed:
                raise BadInput(
                    f"{row} on {column} with seed {one.seed} is given twice: {one.directory} and "
                    f"{other.directory}; leave one out"
                )
    wanted = [names[algorithm] for algorithm in methods or () if algorithm in names]
    return Comparison(
        sorted_labels(rows, list(dict.fromkeys([*wanted, *METHODS.values()]))),
        sorted_labels(columns, list(DATASETS.values())),
        seeds,
    )


def _row_labels(runs: Sequence[RecordedRun], names: Mapping[str, str]) -> list[str]:
    """A label per run: its method, and the settings that distinguish variants of it."""
    methods = [names[run.algorithm] for run in runs]
    settings = [_algorithm_settings(run) for run in runs]
    labels = distinct_labels(methods, [_without_dataset_values(run) for run in runs])
    variants: dict[tuple[str, str], set[str]] = {}
    for run, label, own in zip(runs, labels, settings, strict=True):
        row_on_dataset = variants.setdefault((label, run.experiment["dataset"]), set())
        row_on_dataset.add(repr(sorted(own.items())))
    if all(len(same) == 1 for same in variants.values()):
        return labels
    return distinct_labels(methods, settings)


def _algorithm_settings(run: RecordedRun) -> FlatSettings:
    return {k: v for k, v in run.versioned_settings.items() if k.startswith("algorithm.")}


def _without_dataset_values(run: RecordedRun) -> FlatSettings:
    """The algorithm's settings, with the paper's general value for one that it has per dataset.

    Such a method is one row of the table: FedDecorr has another λ on CIFAR-100.
    """
    settings = _algorithm_settings(run)
    on_dataset = paper.settings_on(run.experiment["dataset"], run.algorithm)
    if not on_dataset.items() <= settings.items():
        return settings
    general = paper.settings_for("", run.algorithm)
    return settings | {key: general[key] for key in on_dataset}


def _other_settings(run: RecordedRun) -> FlatSettings:
    settings = run.versioned_settings.items()
    return with_scenario({k: v for k, v in settings if not k.startswith("algorithm.")})
