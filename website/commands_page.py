"""The reference of all commands, from the command line itself."""

from collections.abc import Iterator
from typing import get_type_hints

import click
import typer

from fedadb.cli import app

OPENING = """# Commands

`fedadb COMMAND --help` prints the same. Exit codes: 0 done, 1 failed, 2 wrong input, 75 try again
later, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
"""


def commands_page() -> str:
    """The page as Markdown."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    return "\n".join([OPENING, *_section(root, "fedadb")])


def _section(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for inner_name, inner in command.commands.items():
            yield from _section(inner, f"{name} {inner_name}")
        return
    if not command.help:
        raise ValueError(f"{name} has no help")
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield f"## {name}\n\n```\n{usage}\n```\n\n{command.help}\n"
    if command.params:
        yield "| | meaning | default |\n| --- | --- | --- |"
        yield "\n".join(_row(parameter, command) for parameter in command.params) + "\n"


def _row(parameter: click.Parameter, command: click.Command) -> str:
    argument = isinstance(parameter, click.Argument)
    names = [parameter.make_metavar(click.Context(command))] if argument else parameter.opts
    default = parameter.default
    shown = "" if default is None or default is False else f"`{default}`"
    if parameter.required:
        shown = "required"
    words = ", ".join(f"`{name}`" for name in names)
    meaning = _help(parameter, command).replace("|", "\\|")
    return f"| {words} | {meaning} | {shown} |"


def _help(parameter: click.Parameter, command: click.Command) -> str:
    """The help of a parameter, from the annotation: click 8.5 drops that of typer's arguments."""
    hints = get_type_hints(command.callback, include_extras=True)
    (info,) = hints[parameter.name or ""].__metadata__
    if not info.help:
        raise ValueError(f"{parameter.name} of {command.name} has no help")
    return str(info.help)
