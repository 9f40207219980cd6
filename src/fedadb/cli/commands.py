"""What a command says after Ctrl-C or SIGTERM."""

from typing import Any

import typer
from typer.core import TyperGroup

from fedadb.cli.terminal import show_error
from fedadb.interruption import exit_code, this_command

CONNECTS = "this connects again"
RESUMES = "finished rounds are kept, and this resumes"
# By the name of the command: what it does if it is given again.
AGAIN = {
    **dict.fromkeys(("run", "compare", "tune", "reproduce", "server"), RESUMES),
    "site": CONNECTS,
}


class Commands(TyperGroup):
    """A group of commands, each of which says after an interruption how it goes on."""

    def invoke(self, ctx: Any) -> Any:
        """Carry out the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            does = AGAIN.get(ctx.invoked_subcommand)
            show_error("stopped" + (f"; {does}: {this_command()}" if does else ""))
            raise typer.Exit(exit_code(error)) from None
