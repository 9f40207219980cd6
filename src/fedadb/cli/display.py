"""What the terminal shows of runs: progress bars, tables of results, tables of a partition."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean, mean, median
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table

from fedadb.experiment.observation import Observer
from fedadb.report import cells
from fedadb.storage.records import Record

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

# Columns of the results that a terminal of fewer characters does not show.
NARROW, OPTIONAL_COLUMNS = 126, ("last 10", "rounds", "s/round", "kB down/up")
VERY_NARROW = 96  # here "picked" takes the place of the last round

MANY_RUNS = 5  # the bars of more runs would not fit on the screen


class ProgressBar(Observer):
    """Shows the rounds of a run: a live bar, or one line per round.

    Args:
        bars: From `progress_bars`. Lines are printed if its console is not a terminal.
        title: The run's name on the screen.
        overall: The progress of all runs, if this is one of several.
    """

    def __init__(
        self, bars: ProgressBars, title: str, overall: "OverallProgress | None" = None
    ) -> None:
        self.bars, self.title, self.overall = bars, title, overall

    def start(self, experiment: "Experiment", directory: Path, done: Sequence[Record]) -> None:
        self.done, self.total = list(done), experiment.rounds
        status = describe_rounds(self.done, self.total) if done else "starting"
        self.task = self.bars.add_task(
            self.title, total=self.total, completed=len(done), status=status
        )

    def record(self, record: Record) -> None:
        self.done.append(record)
        status = describe_rounds(self.done, self.total)
        self.bars.update(self.task, completed=len(self.done), status=status)
        if self.overall:
            self.overall.add_round(record)
        if not self.bars.console.is_terminal:
            position = f"[{self.overall.status}] " if self.overall else ""
            self.bars.console.print(
                f"{position}{self.title}  round {len(self.done)}/{self.total}  {status}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def end(self, finished: bool, error: BaseException | None) -> None:
        if self.overall and self.overall.runs > MANY_RUNS:
            self.bars.remove_task(self.task)


def progress_bars(console: Console) -> ProgressBars:
    """One bar per run; nothing if the console is not a terminal."""
    return ProgressBars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
        disable=not console.is_terminal,
    )


class OverallProgress:
    """A bar for the rounds of several runs together, with the time that the rest will take."""

    def __init__(self, bars: ProgressBars, runs: int, rounds: int) -> None:
        self.bars, self.runs, self.rounds = bars, runs, rounds
        self.ended_runs = self.done = 0
        self.seconds: list[float] = []
        self.task = bars.add_task("all runs", total=rounds, status=self.status)

    @property
    def status(self) -> str:
        current = f"run {min(self.ended_runs + 1, self.runs)} of {self.runs}"
        if not self.seconds:
            return current
        left = timedelta(seconds=round(fmean(self.seconds) * (self.rounds - self.done)))
        return f"{current}, left {left}"

    def add_round(self, record: Record) -> None:
        """Count a round that was just trained."""
        self.seconds.append(record["seconds"])
        self.skip(1)

    def skip(self, rounds: int) -> None:
        """Count rounds without their time."""
        self.done += rounds
        self.bars.update(self.task, completed=self.done, status=self.status)

    def end_run(self, rounds: int) -> None:
        """Count a run as ended, and all rounds up to `rounds` as done even if it failed."""
        self.ended_runs += 1
        self.skip(rounds - self.done)


def describe_rounds(done: list[Record], total: int) -> str:
    """The last and the best accuracy, ε if there is one, and the time that is left if known."""
    best = max(record["accuracy"] for record in done)
    parts = [f"accuracy {done[-1]['accuracy']:.3f}", f"best {best:.3f}"]
    if "epsilon" in done[-1]:
        parts.append(f"ε {done[-1]['epsilon']:.2f}")
    recent = [record["seconds"] for record in done[-10:]]
    if None not in recent:
        parts.append(f"left {timedelta(seconds=round((total - len(done)) * fmean(recent)))}")
    return "  ".join(parts)


def result_tables(table: cells.Table, width: int) -> Iterator[Table]:
    """A report's table for the terminal: one table per setting, with the columns that fit."""
    left_out: list[str] = []
    if table.name == "summary" and width < NARROW:
        left_out += OPTIONAL_COLUMNS
        left_out += ["last"] if width < VERY_NARROW and "picked" in table.header else []
    kept = [i for i, name in enumerate(table.header) if i and name not in left_out]
    for setting in dict.fromkeys(row[0].text for row in table.rows):
        made = Table(box=box.SIMPLE, title=escape(setting), title_justify="left")
        for i in kept:
            made.add_column(table.header[i], no_wrap=True)
        for row in table.rows:
            if row[0].text == setting:
                made.add_row(*(escape(row[i].text) for i in kept))
        yield made


def partition_tables(
    counts: Sequence[Sequence[int]], classes: Sequence[str]
) -> tuple[Table, Table]:
    """A partition in numbers: a table over the clients, and one with a row per class.

    `counts` are n_{k,c}: the rows of each class at each client.
    """
    rows = [sum(of_client) for of_client in counts]
    present = [sum(n > 0 for n in of_client) for of_client in counts]
    missing = [1 - n / len(classes) for n in present]
    clients = Table(f"{len(counts)} clients", "min", "median", "mean", "max", box=box.SIMPLE)
    for name, values, digits in (
        ("rows", rows, 0),
        ("classes", present, 1),
        ("missing-class rate γ", missing, 3),
    ):
        numbers = (min(values), median(values), mean(values), max(values))
        clients.add_row(name, *(f"{number:.{digits}f}" for number in numbers))
    by_class = Table("class", "rows", "clients that hold it", box=box.SIMPLE)
    for c, name in enumerate(classes):
        of_class = [of_client[c] for of_client in counts]
        by_class.add_row(escape(name), str(sum(of_class)), str(sum(n > 0 for n in of_class)))
    return clients, by_class
