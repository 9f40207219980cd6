"""What one sees while a federation trains."""

from collections.abc import Iterable
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedadb.engine.record import Record


def follow(
    done: list[Record], rounds: Iterable[Record], total: int, console: Console, title: str
) -> list[Record]:
    """Show the rounds as they come after those done; the list of all of them.

    On a terminal it is a live bar, elsewhere a line a round.
    """
    done = list(done)
    with bar(console) as progress:
        status = describe(done, total) if done else "starting"
        task = progress.add_task(title, total=total, completed=len(done), status=status)
        for record in rounds:
            done.append(record)
            status = describe(done, total)
            progress.update(task, completed=len(done), status=status)
            if not console.is_terminal:
                console.print(
                    f"{title}  round {len(done)}/{total}  {status}",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )
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


def describe(done: list[Record], total: int) -> str:
    """How the last round went, and when the rest will be done at the recent pace."""
    recent = [record["seconds"] for record in done[-10:]]
    left = timedelta(seconds=round((total - len(done)) * sum(recent) / len(recent)))
    best = max(record["accuracy"] for record in done)
    return f"accuracy {done[-1]['accuracy']:.3f}  best {best:.3f}  left {left}"
