"""The rows of a study, arranged by what its tables ask for; what has not run yet is missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from evidence.curves import read_curves
from evidence.markdown import NOTHING, mean_and_deviation, signed
from evidence.rows import Row, identity, row_identity, rows_so_far
from fedadb.experiment.config import Experiment
from fedadb.experiment.study import find_setting, read_study
from fedadb.experiment.toml_tables import flatten
from fedadb.report.metrics import mean_curve, paired_difference, rounds_to

STUDIES = Path(__file__).parents[1] / "experiments" / "studies"


@dataclass(frozen=True)
class Run:
    """One experiment of a study, and its row and its curve if it has run."""

    experiment: Experiment
    row: Row | None
    curve: Sequence[float] = ()

    @cached_property
    def settings(self) -> dict[str, Any]:
        return flatten(self.experiment.table())

    def __getitem__(self, key: str) -> Any:
        """A setting, by its name or the end of it."""
        return find_setting(self.settings, key)


def has(**wanted: Any) -> Callable[[Run], bool]:
    """Whether a run has these settings."""
    return lambda run: all(run[key] == value for key, value in wanted.items())


@dataclass(frozen=True)
class Cell:
    """Runs that differ in their seed alone."""

    runs: Sequence[Run]

    @property
    def rows(self) -> list[Row]:
        return [run.row for run in self.runs if run.row]

    @property
    def diverged(self) -> int:
        return sum(row["trained"] != row["rounds"] for row in self.rows)

    def values(self, column: str) -> list[float]:
        return [float(row[column]) for row in self.rows if row[column]]

    def by_seed(self) -> dict[int, float]:
        """The best five rounds of each seed."""
        return {int(row["seed"]): float(row["best5"]) for row in self.rows if row["best5"]}

    def number(self, column: str) -> str:
        """Mean and deviation over seeds, and how many seeds there are if some are missing."""
        values = self.values(column)
        if not values:
            return "diverges" if self.diverged else NOTHING
        text = mean_and_deviation(values) if len(values) > 1 else f"{values[0]:.1f}"
        parts = []
        if len(self.rows) < len(self.runs):
            parts.append(f"{len(self.rows)} of {len(self.runs)} seeds")
        if self.diverged:
            parts.append(f"{self.diverged} diverged")
        return f"{text} ({', '.join(parts)})" if parts else text

    def minutes(self) -> str:
        """The time of the fastest seed: others may have shared the machine."""
        values = self.values("seconds")
        return f"{min(values) / 60:.0f}" if values else NOTHING

    def rounds(self, target: float) -> str:
        """The first round in which the smoothed mean of the seeds' curves reaches the target."""
        curves = [run.curve for run in self.runs if run.curve]
        if not curves:
            return NOTHING
        return str(rounds_to(mean_curve(curves), target) or "never")


def paired(cell: Cell, reference: Cell) -> str:
    """The mean difference in the best five rounds over common seeds, and half its 95 % interval.

    The number of common seeds is named if one of the two has more.
    Empty without common seeds, and for the reference itself.
    """
    found = paired_difference(cell.by_seed(), reference.by_seed())
    if found is None or cell == reference:
        return ""
    half = "" if found.half is None else f" ± {found.half:.1f}"
    fewer = found.pairs < max(len(cell.rows), len(reference.rows))
    seeds = f", {found.pairs} {'seed' if found.pairs == 1 else 'seeds'}" if fewer else ""
    return f"{signed(found.mean)}{half}{seeds}"


def with_difference(cell: Cell, reference: Cell) -> str:
    """The best five rounds, and in brackets their paired difference from the reference's."""
    found = paired(cell, reference)
    return cell.number("best5") + (f" ({found})" if found else "")


@dataclass(frozen=True)
class Results:
    """All runs of a study."""

    runs: Sequence[Run]

    def part(self, wanted: Callable[[Run], bool]) -> "Results":
        return Results([run for run in self.runs if wanted(run)])

    def cell(self, wanted: Callable[[Run], bool]) -> Cell:
        return Cell(self.part(wanted).runs)

    def different(self, key: str) -> list[Any]:
        """The values of a setting, in the order of the study."""
        return list(dict.fromkeys(run[key] for run in self.runs))

    @property
    def progress(self) -> str:
        """A sentence on how much has run; none if all has."""
        done = sum(run.row is not None for run in self.runs)
        if done == len(self.runs):
            return ""
        return f"\n{done} of {len(self.runs)} runs are done.\n"


def study_results(results: Path, study: str) -> Results:
    """The runs of experiments/studies/STUDY.toml, with what results/STUDY.csv has of them."""
    path = results / f"{study}.csv"
    rows = {row_identity(row): row for row in rows_so_far(path)}
    curves = read_curves(path)
    runs = []
    for e in experiments(study):
        key = identity(e.table())
        runs.append(Run(e, rows.get(key), curves.get(key, ())))
    return Results(runs)


@cache
def experiments(study: str) -> Sequence[Experiment]:
    return read_study(STUDIES / f"{study}.toml").experiments
