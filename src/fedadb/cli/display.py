"""What one sees of federations: before they train, while they do, and when they have."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from statistics import fmean, mean, median

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from fedadb.storage.records import Record
from fedadb.experiment.run import Run
from fedadb.report import formats

# A terminal narrower than this shows a summary without these columns.
NARROW, SPARED = 110, ("last 10", "rounds", "s/round", "kB down/up")


def follow(
    run: Run,
    total: int,
    progress: Progress,
    title: str,
    each: Callable[[Record], None] = lambda record: None,
    together: "Together | None" = None,
) -> list[Record]:
    """Show the run's rounds as they come after those done; the list of all of them.

    On a terminal it is a live bar, elsewhere a line a round. `each` sees every new one.
    """
    done = list(run.done)
    status = describe(done, total) if done else "starting"
    task = progress.add_task(title, total=total, completed=len(done), status=status)
    for record in run.rounds:
        done.append(record)
        status = describe(done, total)
        progress.update(task, completed=len(done), status=status)
        each(record)
        if together:
            together.add(record)
        if not progress.console.is_terminal:
            place = f"[{together.status}] " if together else ""
            progress.console.print(
                f"{place}{title}  round {len(done)}/{total}  {status}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    if together and together.runs > 5:  # more would not fit on the screen
        progress.remove_task(task)
    return done


def bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
        disable=not console.is_terminal,
    )


class Together:
    """How far many runs are, on a bar of their own, and how long the rest will take."""

    def __init__(self, progress: Progress, runs: int, rounds: int) -> None:
        self.progress, self.runs, self.rounds = progress, runs, rounds
        self.ended = self.done = 0
        self.seconds: list[float] = []
        self.task = progress.add_task("all runs", total=rounds, status=self.status)

    @property
    def status(self) -> str:
        now = f"run {min(self.ended + 1, self.runs)} of {self.runs}"
        if not self.seconds:
            return now
        left = timedelta(seconds=round(fmean(self.seconds) * (self.rounds - self.done)))
        return f"{now}, left {left}"

    def add(self, record: Record) -> None:
        """A round was done."""
        self.seconds.append(record["seconds"])
        self.skip(1)

    def skip(self, rounds: int) -> None:
        """Rounds that were done before."""
        self.done += rounds
        self.progress.update(self.task, completed=self.done, status=self.status)

    def end(self, rounds: int) -> None:
        """A run is over, and with it so many rounds, whether all were done or not."""
        self.ended += 1
        self.skip(rounds - self.done)


def describe(done: list[Record], total: int) -> str:
    """How the last round went, and when the rest will be done at the recent pace."""
    recent = [record["seconds"] for record in done[-10:]]
    left = timedelta(seconds=round((total - len(done)) * sum(recent) / len(recent)))
    best = max(record["accuracy"] for record in done)
    return f"accuracy {done[-1]['accuracy']:.3f}  best {best:.3f}  left {left}"


def shown(table: formats.Table, width: int) -> Iterator[Table]:
    """A report's table on the terminal: one for each setting, with what fits."""
    narrow = width < NARROW
    kept = [i for i, name in enumerate(table.header) if i and not (narrow and name in SPARED)]
    for setting in dict.fromkeys(row[0].text for row in table.rows):
        made = Table(box=box.SIMPLE, title=escape(setting), title_justify="left")
        for i in kept:
            made.add_column(table.header[i], no_wrap=True)
        for row in table.rows:
            if row[0].text == setting:
                made.add_row(*(escape(row[i].text) for i in kept))
        yield made


def holdings(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> tuple[Table, Table]:
    """Who holds what: over the clients, and class by class."""
    rows = [sum(held) for held in counts]
    present = [sum(n > 0 for n in held) for held in counts]
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
        of_class = [held[c] for held in counts]
        by_class.add_row(escape(name), str(sum(of_class)), str(sum(n > 0 for n in of_class)))
    return clients, by_class
