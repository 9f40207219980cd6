"""The command line."""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from fedadb.cli.analyse import analyse
from fedadb.cli.data import data, partition
from fedadb.cli.deploy import deploy
from fedadb.cli.export import export, predict
from fedadb.cli.report import report, watch
from fedadb.cli.reproduce import reproduce
from fedadb.cli.terminal import complain, tell
from fedadb.cli.train import compare, run
from fedadb.core.errors import BadInput, Fault

app = typer.Typer(
    help="Train one model across clients whose data differ, without forgetting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(compare)
app.command()(reproduce)
app.command()(report)
app.command()(watch)
app.command()(analyse)
app.command()(export)
app.command()(predict)
app.command()(partition)
app.add_typer(data, name="data")
app.add_typer(deploy, name="deploy")


def _version(wanted: bool) -> None:
    if wanted:
        tell(f"fedadb {version('fedadb')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Train one model across clients whose data differ, without forgetting."""


def main() -> None:
    """Run the command; what is not a bug ends in one sentence and an exit code."""
    try:
        app()
    except BadInput as error:
        complain(str(error))
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read the output has gone; let Python not complain about it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        sys.exit(1)
    except Fault as error:
        complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        complain("stopped")
        sys.exit(130)
