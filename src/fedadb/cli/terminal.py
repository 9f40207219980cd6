"""What the commands share: where they print, and how they read an experiment."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

out = Console()

FILE = Annotated[
    Path | None, typer.Argument(help="An experiment in TOML; without one, the digits.")
]
SETTINGS = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: local.lr=0.05."),
]

TENSORBOARD = Annotated[
    bool, typer.Option("--tensorboard", help="Also write event files for TensorBoard.")
]


def given(file: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """The experiment's table from its file and the command line."""
    from fedadb.experiment import config

    look_beside(file)
    table = config.load_toml(file) if file else {}
    for assignment in settings or []:
        table = config.override(table, assignment)
    return table


def look_beside(file: Path | None) -> None:
    """Let `module:Class` be found beside the experiment's file, or here without one."""
    sys.path.insert(0, str(file.parent if file else Path.cwd()))


@contextmanager
def show_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar, on a terminal; it goes away when the work is done."""
    done: ProgressColumn = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=out,
        disable=not out.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda advance: progress.advance(task, advance)


def tell(message: str) -> None:
    out.print(message, highlight=False, markup=False, soft_wrap=True)


def complain(message: str) -> None:
    print(f"fedadb: {message}", file=sys.stderr)
