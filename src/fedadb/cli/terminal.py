"""What all commands share: output, progress bars, and the options that describe an experiment."""

import logging
import sys
import warnings
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
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBars
from rich.table import Table

from fedadb.cli.completion import complete_algorithms, complete_setting

console = Console()

ExperimentArgument = Annotated[
    Path | None, typer.Argument(help="An experiment in TOML; by default FedADB on digits.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, such as local.lr=0.05. Can be given several times; `fedadb "
        "explain` lists the settings.",
        autocompletion=complete_setting,
    ),
]
AlgorithmsOption = Annotated[
    str,
    typer.Option(
        help="Algorithms, separated by commas; your own are module:Class.",
        autocompletion=complete_algorithms,
    ),
]
FromRoundOption = Annotated[
    int | None,
    typer.Option(
        "--from-round",
        min=1,
        metavar="N",
        help="Forget the rounds after N, and train them again; N is one of the last three.",
    ),
]
CodeOption = Annotated[
    Path | None,
    typer.Option(
        "--code",
        metavar="DIR",
        help="Where the run's own module:Class is, if it has one. Its code is executed: give this "
        "only for runs that you trust.",
    ),
]
TrackOption = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="NAME,…",
        help="Also record the rounds for other programs: tensorboard, mlflow, wandb.",
    ),
]


def experiment_table(file: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """The experiment's table: the file's settings, overridden by those of the command line."""
    from fedadb.experiment.toml_tables import load_toml, override

    if file:
        allow_imports_from(file.parent)
    allow_imports_from(Path.cwd())
    table = load_toml(file) if file else {}
    for assignment in settings or []:
        table = override(table, assignment)
    return table


def set_keys(settings: list[str] | None) -> set[str]:
    """The keys that the command line sets, by their names of today."""
    from fedadb.experiment.toml_tables import RENAMED

    keys = {assignment.partition("=")[0].strip() for assignment in settings or []}
    return {RENAMED.get(key, key) for key in keys}


def sets(settings: list[str] | None, key: str) -> bool:
    """Whether the command line sets the key itself, and not only a file or a default."""
    return any(assignment.partition("=")[0].strip() == key for assignment in settings or [])


def checked_table(file: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """The experiment's table, checked before torch is imported, which takes a second or more."""
    from fedadb.experiment.precheck import precheck

    table = experiment_table(file, settings)
    precheck(table)
    return table


def allow_imports_from(directory: Path) -> None:
    """Let the user's own `module:Class` be imported from the directory.

    It comes last, so that no file in it can take the place of an installed module.
    """
    sys.path.append(str(directory.absolute()))


@contextmanager
def show_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal while the work lasts; elsewhere, nothing."""
    done: ProgressColumn = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done)
    with ProgressBars(
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bars:
        task = bars.add_task(what, total=total)
        yield lambda advance: bars.advance(task, advance)


@contextmanager
def show_warnings(logger: logging.Logger, category: type[Warning]) -> Iterator[None]:
    """Show what the logger warns of as an error, and not also as Python shows warnings."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: show_error(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            yield
    finally:
        logger.removeHandler(handler)


def show_disclosures(experiment: dict[str, Any]) -> None:
    """Print what each party of the federation learns."""
    from fedadb.experiment.disclosure import TITLE, disclosures

    table = Table(title=TITLE, title_justify="left", show_lines=True)
    table.add_column("who", max_width=16)
    table.add_column("learns", ratio=3)
    table.add_column("does not learn", ratio=2)
    for party, learns, hidden in disclosures(experiment):
        table.add_row(party, *("\n".join(f"• {one}" for one in many) for many in (learns, hidden)))
    console.print(table)


def show_message(message: str) -> None:
    """Print to stdout, without wrapping lines."""
    console.print(message, highlight=False, markup=False, soft_wrap=True)


def show_error(message: str) -> None:
    """Print to stderr, with the command's name."""
    print(f"fedadb: {message}", file=sys.stderr)
