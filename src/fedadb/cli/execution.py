"""Trains experiments and shows their progress: one, or several that belong together."""

import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from fedadb.cli.terminal import (
    console,
    show_error,
    show_message,
    show_progress,
    show_warnings,
)
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from rich.progress import Progress as ProgressBars

    from fedadb.cli.display import OverallProgress
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.observation import Observer
    from fedadb.storage.records import Record


def train(
    e: "Experiment",
    directory: Path,
    bars: "ProgressBars",
    trackers: "Sequence[Observer]" = (),
    overall: "OverallProgress | None" = None,
    from_round: int | None = None,
    any_kernels: bool = False,
) -> None:
    """Run the experiment in its directory, or resume it there; the options are `start_run`'s."""
    title = f"{e.algorithm.name} on {e.dataset}, seed {e.seed}"
    progress = ProgressShown(bars, title, trackers, overall)
    for _ in trained_rounds(e, directory, progress, from_round, any_kernels):
        pass  # the observers show it


class ProgressShown(NamedTuple):
    """Where the progress of a run is shown."""

    bars: "ProgressBars"
    title: str
    trackers: "Sequence[Observer]" = ()
    overall: "OverallProgress | None" = None


def trained_rounds(
    e: "Experiment",
    directory: Path,
    shown: ProgressShown,
    from_round: int | None = None,
    any_kernels: bool = False,
) -> "Generator[Record]":
    """Train the rounds that the directory lacks, and yield their records."""
    from fedadb.cli.display import ProgressBar
    from fedadb.engine.process import cores
    from fedadb.experiment.run import start_run

    workers = e.engine.workers
    on_this_machine = e.engine.backend != "ray" or e.engine.address is None
    if workers != "auto" and workers > cores() and on_this_machine:
        show_error(f"engine.workers = {workers}: this machine has only {cores()} cores")
    observers = [ProgressBar(shown.bars, shown.title, shown.overall), *shown.trackers]
    try:
        with (
            show_run_warnings(),
            start_run(
                e,
                directory,
                show_progress,
                from_round=from_round,
                observers=observers,
                any_kernels=any_kernels,
            ) as run,
        ):
            if len(run.done) == e.rounds:
                show_message(f"{shown.title}: finished earlier, in {directory}")
            yield from run.rounds
    except OSError as error:
        raise disk_fault(error) from error


def disk_fault(error: OSError) -> Fault:
    """A failed write or read as one sentence."""
    path = f"{error.filename}: " if error.filename else ""
    return Fault(f"{path}{error.strerror or error}; finished rounds are kept")


@contextmanager
def show_run_warnings() -> Iterator[None]:
    """Show failed observers and hints as the other messages, and not as Python shows warnings."""
    from fedadb.experiment import sizes
    from fedadb.experiment.observation import FAILURES, ObserverWarning

    with show_warnings(FAILURES, ObserverWarning), show_warnings(sizes.LOG, sizes.SizeWarning):
        yield


@dataclass
class Outcome:
    """Which of several runs or searches finished, and why others failed."""

    kind: str = "runs"
    finished: list[Path] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)  # names of runs by error message
    only_bad_input: bool = True  # whether every failure is due to wrong input

    def add_failure(self, name: str, message: str, bad_input: bool) -> None:
        self.failed.setdefault(message, []).append(name)
        self.only_bad_input &= bad_input

    def show_failures(self) -> None:
        """Show each error once, however many runs have it."""
        for message, names in self.failed.items():
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            show_error(f"{names[0]}{others}: {message}")

    def exit_if_failed(self) -> None:
        """Exit with code 2 if all runs failed because of wrong input, with 1 if others failed."""
        if not self.failed:
            return
        failed = sum(map(len, self.failed.values()))
        total = failed + len(self.finished)
        again = "" if self.only_bad_input else "; the same command tries them again"
        show_error(f"{failed} of {total} {self.kind} failed{again}")
        raise typer.Exit(2 if self.only_bad_input and not self.finished else 1)


def train_all(
    experiments: "Sequence[Experiment]",
    out: Path,
    trackers: "Sequence[Observer]" = (),
    any_kernels: bool = False,
) -> Outcome:
    """Run the experiments one after the other, each in its own directory in `out`.

    A run that fails does not stop the others.
    """
    from fedadb.cli.display import OverallProgress, progress_bars
    from fedadb.experiment.identity import run_name
    from fedadb.experiment.run import done_rounds

    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; --out must name a directory")
    outcome = Outcome()
    with progress_bars(console) as bars:
        overall = OverallProgress(bars, len(experiments), sum(e.rounds for e in experiments))
        for e in experiments:
            directory, before = out / run_name(e), overall.done
            try:
                overall.skip(done_rounds(directory))
                train(e, directory, bars, trackers, overall, any_kernels=any_kernels)
                outcome.finished.append(directory)
            except (BadInput, Fault) as error:
                outcome.add_failure(directory.name, str(error), isinstance(error, BadInput))
            except OSError as error:
                outcome.add_failure(directory.name, str(disk_fault(error)), False)
            except typer.Exit:
                raise
            except Exception:  # a bug; the other runs may not have it
                traceback.print_exc(file=sys.stderr)
                outcome.add_failure(directory.name, "an unexpected error, shown above", False)
            overall.end_run(before + e.rounds)
    outcome.show_failures()
    return outcome


def show_results(directories: Sequence[Path], methods: Sequence[str] | None = None) -> None:
    """Print a table of the runs' results; `methods` orders its rows, as in `arrange`."""
    from fedadb.cli.display import result_tables
    from fedadb.report.comparison import arrange  # late: it takes a while to load
    from fedadb.report.recorded_runs import read_recorded_run
    from fedadb.report.tables import summary_table

    table = summary_table(arrange([read_recorded_run(path) for path in directories], methods))
    for part in result_tables(table, console.width):
        console.print(part)
    show_message(" ".join(table.notes))
