"""The command line."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
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


@app.command()
def run(
    experiment: Annotated[
        Path | None, typer.Argument(help="An experiment in TOML; without one, FedAvg on digits.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: local.lr=0.05."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where results go; by default below runs/, named by the experiment."
        ),
    ] = None,
) -> None:
    """Train one federation. An interrupted run goes on where it stopped."""
    from fedadb.experiment import config
    from fedadb.experiment.run import History, begin, default_directory
    from fedadb.progress import follow

    # Where `module:Class` is looked for first: beside the experiment's file.
    sys.path.insert(0, str(experiment.parent if experiment else Path.cwd()))
    given = config.load(experiment) if experiment else {}
    for assignment in settings or []:
        given = config.override(given, assignment)
    e = config.Experiment.read(given)
    place = directory or default_directory(e)
    title = f"{type(e.algorithm).__name__} on {e.dataset}"
    try:
        with begin(e, place) as begun:
            records = follow(begun.done, begun.rounds, e.rounds, out, title)
    except KeyboardInterrupt:
        _complain(f"stopped; the same command goes on from the last round in {place}")
        raise typer.Exit(130) from None
    out.print(summary(title, History(place, records)))
    out.print(f"Results: {place}", highlight=False, markup=False, soft_wrap=True)


def summary(title: str, history: "History") -> Table:
    last = history.rounds[-1]
    best = sorted(history.accuracy)[-5:]
    table = Table(title=escape(title), show_header=False)
    table.add_row("rounds", str(len(history.rounds)))
    table.add_row("accuracy, mean of the 5 best rounds", f"{sum(best) / len(best):.4f}")
    table.add_row("accuracy, last round", f"{last['accuracy']:.4f}")
    loss = "not finite" if last["loss"] is None else f"{last['loss']:.4f}"
    table.add_row("loss, last round", loss)
    worst = min(a for a in last["class_accuracy"] if a is not None)
    table.add_row("accuracy of the weakest class, last round", f"{worst:.4f}")
    seconds = sum(record["seconds"] for record in history.rounds)
    table.add_row("seconds a round", f"{seconds / len(history.rounds):.2f}")
    return table


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
    out.print(
        f"Data directory: {directory()} (set FEDADB_DATA to change it)",
        markup=False,
        soft_wrap=True,
    )


@data.command()
def fetch(name: Annotated[str, typer.Argument(help="A dataset of `fedadb data list`.")]) -> None:
    """Download a dataset from its official source, and verify it."""
    from fedadb.datasets import SOURCES
    from fedadb.experiment.tables import near

    if name not in SOURCES:
        raise BadInput(f"{name!r} is not a dataset to fetch; {near(name, SOURCES)}")
    source = SOURCES[name]
    if source.here():
        out.print(f"{name} is here already.")
        return
    with out.status(f"fetching {source.url}"):
        place = source.fetch()
    out.print(f"{name}: {place}", markup=False, soft_wrap=True)


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
    except (Fault, OSError) as error:
        _complain(str(error))
        sys.exit(1)
