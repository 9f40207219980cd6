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
from fedadb.experiment.declarations import setting_keys
from fedadb.experiment.study import find_setting, read_study
from fedadb.experiment.toml_tables import flatten
from fedadb.report.metrics import mean_curve, paired_difference, rounds_to
from fedadb.roles import added_defaults

STUDIES = Path(__file__).parents[1] / "experiments" / "studies"


@dataclass(frozen=True)
class Run:
    """One experiment of a study, and its row and its curve if it has run."""

    experiment: Experiment
    row: Row | None
    curve: Sequence[float] = ()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings; the table of an experiment leaves out later ones at their defaults."""
        e = self.experiment
        parts: dict[str, Any] = {
            "local": e.local,
            "algorithm": e.algorithm,
            "model": e.model,
            "federation.partition": e.federation.partition,
        }
        later = {
            f"{name}.{key}": default
            for name, part in parts.items()
            for key, default in added_defaults(part.__class__).items()
        }
        return later | flatten(e.table())

    def __getitem__(self, key: str) -> Any:
        """A setting, by its name or the end of it; None if the method has none of that name."""
        return find_setting(self.settings, key)


# "name" ends the names of settings that may be abbreviated, such as federation.partition.name.
SETTING_NAMES = {key.rpartition(".")[2] for key in setting_keys()} | {"name"}


def has(**wanted: Any) -> Callable[[Run], bool]:
    """Whether a run has these settings."""
    if unknown := {key for key in wanted if key.rpartition(".")[2] not in SETTING_NAMES}:
        raise ValueError(f"no setting ends in {' or '.join(unknown)}")
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

    def setting(self, key: str) -> Any:
        """A setting of all its runs."""
        values = {run[key] for run in self.runs}
        if len(values) != 1:
            raise ValueError(f"{key} must have one value in a cell: {values}")
        return values.pop()

    def by_seed(self, column: str = "best5") -> dict[int, float]:
        """A number of each seed."""
        values = {int(row["seed"]): float(row[column]) for row in self.rows if row[column]}
        if len({run.experiment.seed for run in self.runs}) != len(self.runs):
            raise ValueError("a cell must have one run per seed")
        return values

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

    def rounds_by_seed(self, target: float) -> list[int | None]:
        """The first round in which each seed's own smoothed curve reaches the target."""
        return [rounds_to(run.curve, target) for run in self.runs if run.curve]

    def rounds_and_range(self, target: float) -> str:
        """The round of the mean curve, and in brackets the first and the last of the seeds."""
        of_seeds = self.rounds_by_seed(target)
        if len(of_seeds) < 2 or not any(of_seeds):
            return self.rounds(target)
        first = min(t for t in of_seeds if t)
        last = "never" if None in of_seeds else str(max(t for t in of_seeds if t))
        return f"{self.rounds(target)} ({first} to {last})"


def paired(cell: Cell, reference: Cell) -> str:
    """The mean difference in the best five rounds over common seeds, and half its 95 % interval.

    The number of common seeds is named if one of the two has more.
    Empty without common seeds, and for the reference itself.
    """
    difference = paired_difference(cell.by_seed(), reference.by_seed())
    if difference is None or cell == reference:
        return ""
    half = "" if difference.half is None else f" ± {difference.half:.1f}"
    fewer = difference.pairs < max(len(cell.rows), len(reference.rows))
    seeds = f", {difference.pairs} {'seed' if difference.pairs == 1 else 'seeds'}" if fewer else ""
    return f"{signed(difference.mean)}{half}{seeds}"


def with_difference(cell: Cell, reference: Cell) -> str:
    """The best five rounds, and in brackets their paired difference from the reference's."""
    difference = paired(cell, reference)
    return cell.number("best5") + (f" ({difference})" if difference else "")


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
