"""What one sees of federations: before they train, while they do, and when they have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from statistics import fmean, mean, median

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from fedadb.engine.record import Record
from fedadb.experiment.run import History
from fedadb.report import formats
from fedadb.report.statistics import best_rounds, forgetting, rounds_to


def follow(
    done: list[Record],
    rounds: Iterable[Record],
    total: int,
    progress: Progress,
    title: str,
    each: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Show the rounds as they come after those done; the list of all of them.

    On a terminal it is a live bar, elsewhere a line a round. `each` sees every new one.
    """
    done = list(done)
    status = describe(done, total) if done else "starting"
    task = progress.add_task(title, total=total, completed=len(done), status=status)
    for record in rounds:
        done.append(record)
        status = describe(done, total)
        progress.update(task, completed=len(done), status=status)
        if not progress.console.is_terminal:
            progress.console.print(
                f"{title}  round {len(done)}/{total}  {status}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        each(record)
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
        status = f"run 1 of {runs}"
        self.task = progress.add_task("all runs", total=rounds, status=status)

    def add(self, record: Record) -> None:
        """A round was done."""
        self.seconds.append(record["seconds"])
        self.skip(1)

    def skip(self, rounds: int) -> None:
        """Rounds that were done before, or will not be done."""
        self.done += rounds
        left = timedelta(seconds=round(fmean(self.seconds or [0]) * (self.rounds - self.done)))
        status = f"run {min(self.ended + 1, self.runs)} of {self.runs}  left {left}"
        self.progress.update(self.task, completed=self.done, status=status)

    def end(self) -> None:
        self.ended += 1
        self.skip(0)


def describe(done: list[Record], total: int) -> str:
    """How the last round went, and when the rest will be done at the recent pace."""
    recent = [record["seconds"] for record in done[-10:]]
    left = timedelta(seconds=round((total - len(done)) * sum(recent) / len(recent)))
    best = max(record["accuracy"] for record in done)
    return f"accuracy {done[-1]['accuracy']:.3f}  best {best:.3f}  left {left}"


def summary(histories: Mapping[str, History]) -> Table:
    """What came of the runs, a row each."""
    headers = ("", "best 5 rounds", "last round", "to 80 %", "forgetting", "s/round")
    table = Table(*headers, box=box.SIMPLE)
    for name, history in histories.items():
        reached = rounds_to(history.accuracy, 0.8)
        lost = [record["class_accuracy"] for record in history.rounds]
        seconds = sum(record["seconds"] for record in history.rounds) / len(history.rounds)
        table.add_row(
            escape(name),
            f"{best_rounds(history.accuracy):.4f}",
            f"{history.accuracy[-1]:.4f}",
            "--" if reached is None else str(reached),
            f"{forgetting(lost):.4f}" if len(lost) > 1 else "--",
            f"{seconds:.2f}",
        )
    return table


def shown(table: formats.Table) -> Table:
    """A report's table on the terminal, without a first column that says the same in each row."""
    same = len({row[0].text for row in table.rows}) == 1
    made = Table(*table.header[same:], box=box.SIMPLE, caption=" ".join(table.notes))
    for row in table.rows:
        made.add_row(*(escape(entry.text) for entry in row[same:]))
    return made


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
