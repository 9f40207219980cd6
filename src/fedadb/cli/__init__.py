"""The command line.

The modules imported here import torch only inside functions, so that `fedadb --help` is fast.
"""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from fedadb.cli.analyse import ANALYSE_HELP, analyse
from fedadb.cli.commands import Commands
from fedadb.cli.completion import join_split_words
from fedadb.cli.data import data, partition
from fedadb.cli.deploy import deploy
from fedadb.cli.explain import explain
from fedadb.cli.export import export, predict
from fedadb.cli.init import init
from fedadb.cli.operating import audit, doctor
from fedadb.cli.report import report, watch
from fedadb.cli.reproduce import REPRODUCE_HELP, reproduce
from fedadb.cli.site_tables import combine, describe
from fedadb.cli.terminal import show_error, show_message, show_warnings
from fedadb.cli.train import compare, run
from fedadb.cli.tune import tune
from fedadb.core.errors import BadInput, Fault, Temporary
from fedadb.interruption import exit_code, interrupted_by_sigterm
from fedadb.kernels.notice import LOG, KernelsWarning

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(init)
app.command()(run)
app.command()(compare)
app.command()(tune)
app.command(help=REPRODUCE_HELP)(reproduce)
app.command()(report)
app.command()(watch)
app.command(help=ANALYSE_HELP)(analyse)
app.command()(explain)
app.command()(export)
app.command()(predict)
app.command()(partition)
app.add_typer(data, name="data")
deploy.command()(describe)
deploy.command()(combine)
deploy.command()(audit)
deploy.command()(doctor)
app.add_typer(deploy, name="deploy")


def _show_version(wanted: bool) -> None:
    if wanted:
        from fedadb.kernels.selection import kernels_here

        words = [f"fedadb {version('fedadb')}", f"torch {version('torch')}"]
        show_message(", ".join([*words, f"kernels: {kernels_here()}"]))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the versions of fedadb and torch, and the kernels of this machine.",
        ),
    ] = False,
) -> None:
    """Train one model across clients whose data differ, without forgetting."""


def main() -> None:
    """Run the command. A failure that is not a bug ends in one sentence and an exit code."""
    join_split_words()
    try:
        with interrupted_by_sigterm(), show_warnings(LOG, KernelsWarning):
            app(prog_name="fedadb")
    except BadInput as error:
        show_error(str(error))
        sys.exit(2)
    except BrokenPipeError:
        # The reader of stdout has exited. Python would report the error again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        show_error(f"{path}{error.strerror or error}")
        sys.exit(1)
    except Fault as error:
        show_error(str(error))
        sys.exit(75 if isinstance(error, Temporary) else 1)
    except KeyboardInterrupt as error:  # before the command began, or after it ended
        show_error("stopped")
        sys.exit(exit_code(error))
