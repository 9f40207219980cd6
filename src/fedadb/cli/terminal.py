"""What all commands share: output, progress bars, and the options that describe an experiment."""

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

console = Console()

ExperimentArgument = Annotated[
    Path | None, typer.Argument(help="An experiment in TOML; by default FedADB on digits.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, such as local.lr=0.05. Can be given several times.",
    ),
]
TensorBoardOption = Annotated[
    bool, typer.Option("--tensorboard", help="Also write event files for TensorBoard.")
]


def experiment_table(file: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """The experiment's table: the file's settings, with those of the command line over them."""
    from fedadb.experiment import config

    allow_imports_beside(file)
    table = config.load_toml(file) if file else {}
    for assignment in settings or []:
        table = config.override(table, assignment)
    return table


def allow_imports_beside(file: Path | None) -> None:
    """Let `module:Class` be imported from the file's directory; None: from the current one."""
    sys.path.insert(0, str(file.parent if file else Path.cwd()))


@contextmanager
def show_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal while the work lasts; elsewhere, nothing."""
    done: ProgressColumn = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda advance: progress.advance(task, advance)


def show_message(message: str) -> None:
    """Print to stdout, without wrapping lines."""
    console.print(message, highlight=False, markup=False, soft_wrap=True)


def show_error(message: str) -> None:
    """Print to stderr, with the command's name."""
    print(f"fedadb: {message}", file=sys.stderr)
