"""The command line."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.run import History

app = typer.Typer(
    help="Train one model across clients whose data differ, without forgetting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="The datasets: which there are, and getting them.", no_args_is_help=True)
app.add_typer(data, name="data")

out = Console()


FILE = Annotated[
    Path | None, typer.Argument(help="An experiment in TOML; without one, the digits.")
]
SETTINGS = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: local.lr=0.05."),
]


def _version(wanted: bool) -> None:
    if wanted:
        _tell(f"fedadb {version('fedadb')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Train one model across clients whose data differ, without forgetting."""


@app.command()
def run(
    experiment: FILE = None,
    settings: SETTINGS = None,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where results go; by default below runs/, named by the run."),
    ] = None,
) -> None:
    """Train one federation. An interrupted run goes on where it stopped.

    EXPERIMENT is a file in TOML; without one, it is FedADB on digits.
    """
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.directory import default_directory
    from fedadb.progress import summary

    e = Experiment.read(_given(experiment, settings))
    place = directory or default_directory(e)
    history = _train(e, place)
    out.print(summary({type(e.algorithm).__name__: history}))
    _tell(f"Results: {place}")


@app.command()
def compare(
    experiment: FILE = None,
    algorithms: Annotated[
        str, typer.Option(help="Names with commas between them.")
    ] = "fedavg,fedadb",
    seeds: Annotated[str, typer.Option(help="Numbers with commas between them.")] = "0",
    settings: SETTINGS = None,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where results go; by default below runs/, named by the data."),
    ] = None,
) -> None:
    """Train several algorithms on the same experiment, and show them together.

    EXPERIMENT is a file in TOML; without one, it is digits. What is done is not done again.
    """
    from fedadb.experiment.grid import grid
    from fedadb.progress import summary
    from fedadb.report.curves import draw_accuracy

    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise BadInput(f"--seeds {seeds!r}: must be whole numbers, as in 0,1,2") from None
    runs = grid(_given(experiment, settings), algorithms.split(","), numbers)
    dataset = next(iter(runs.values())).dataset.rpartition("/")[2]
    place = directory or Path("runs") / f"compare-{dataset}"
    histories = {
        f"{type(e.algorithm).__name__}, seed {e.seed}": _train(e, place / name)
        for name, e in runs.items()
    }
    out.print(summary(histories))
    picture = place / "accuracy.png"
    draw_accuracy({name: h.accuracy for name, h in histories.items()}, dataset, picture)
    _tell(f"Results: {place}\nPicture: {picture}")


def _given(file: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """The experiment's table from its file and the command line."""
    from fedadb.experiment import config

    # Where `module:Class` is looked for first: beside the experiment's file.
    sys.path.insert(0, str(file.parent if file else Path.cwd()))
    given = config.load(file) if file else {}
    for assignment in settings or []:
        given = config.override(given, assignment)
    return given


def _title(e: "Experiment") -> str:
    return f"{type(e.algorithm).__name__} on {e.dataset}"


def _train(e: "Experiment", place: Path) -> "History":
    """Run the experiment in its directory, in sight of the user."""
    from fedadb.experiment.run import History, begin
    from fedadb.progress import follow

    try:
        with begin(e, place) as begun:
            if len(begun.done) == e.rounds:
                _tell(f"{_title(e)}: done earlier, in {place}")
            return History(place, follow(begun.done, begun.rounds, e.rounds, out, _title(e)))
    except KeyboardInterrupt:
        _complain(f"stopped; the same command goes on from the last round in {place}")
        raise typer.Exit(130) from None


@data.command("list")
def list_() -> None:
    """Show the datasets, and which of them are on this machine."""
    from fedadb.datasets import SOURCES
    from fedadb.datasets.source import directory

    table = Table("name", "classes", "here")
    table.add_row("digits", "10", "always: comes with scikit-learn")
    for name, source in SOURCES.items():
        table.add_row(name, str(source.classes), source.path if source.here() else "no")
    table.add_row("npz:PATH", "any", "your own arrays")
    table.add_row("folder:PATH", "any", "your own images, one subfolder per class")
    out.print(table)
    _tell(f"Data directory: {directory()} (set FEDADB_DATA to change it)")


@data.command()
def fetch(name: Annotated[str, typer.Argument(help="A dataset of `fedadb data list`.")]) -> None:
    """Download a dataset from its official source, and verify it."""
    from fedadb.datasets import SOURCES
    from fedadb.experiment.tables import near

    if name not in SOURCES:
        raise BadInput(f"{name!r} is not a dataset to fetch; {near(name, SOURCES)}")
    source = SOURCES[name]
    if source.here() and source.readable():
        _tell(f"{name} is here already.")
        return
    with out.status(f"fetching {source.url}"):
        place = source.fetch()
    _tell(f"{name}: {place}")


def _tell(message: str) -> None:
    out.print(message, highlight=False, markup=False, soft_wrap=True)


def _complain(message: str) -> None:
    print(f"fedadb: {message}", file=sys.stderr)


def main() -> None:
    """Run the command; what is not a bug ends in one sentence and an exit code."""
    try:
        app()
    except BadInput as error:
        _complain(str(error))
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read the output has gone; let Python not complain about it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}; what is done so far is kept")
        sys.exit(1)
    except Fault as error:
        _complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
