"""The command `explain`: what a setting means, its default, its values and who reads it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedadb.cli.completion import complete_topic
from fedadb.cli.terminal import console
from fedadb.core.errors import BadInput

if TYPE_CHECKING:
    from fedadb.experiment.meanings import Setting


def explain(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="A setting such as local.lr, a table such as local, or a name such as fedprox; "
            "without it, all settings are listed.",
            autocompletion=complete_topic,
        ),
    ] = None,
) -> None:
    """Say what a setting means, its default, its values and who reads it."""
    from fedadb.experiment.declarations import CHOSEN
    from fedadb.experiment.meanings import all_settings

    settings = all_settings()
    if topic is None:
        _list_settings(setting for setting in settings if not setting.owner)
        return
    found = [setting for setting in settings if setting.key == topic]
    inside = [s for s in settings if s.key.startswith(f"{topic}.") and not s.owner]
    named = _named(topic)
    for setting in found:
        _show_setting(setting)
    if topic in CHOSEN:
        _list_choices(topic)
    elif inside:
        _list_settings(inside)
    for key in named:
        _show_choice(key, topic)
    if not (found or inside or named):
        raise BadInput(_unknown(topic))


def _show_setting(setting: "Setting") -> None:
    owner = f" of {setting.owner}" if setting.owner else ""
    _print(f"[bold]{escape(setting.key)}[/bold]{owner}: {escape(setting.meaning)}")
    lines = Table.grid(padding=(0, 2))
    for name, text in _facts(setting):
        lines.add_row(f"  {name}", escape(text))
    console.print(lines)


def _facts(setting: "Setting") -> Iterator[tuple[str, str]]:
    if not setting.values:  # a table, whose settings follow
        return
    yield "default", setting.default or "none: it must be given"
    if setting.other_defaults:
        yield "", setting.other_defaults
    yield "values", setting.values
    if setting.searched:
        low, high, scale = setting.searched.low, setting.searched.high, setting.searched.scale
        yield "searched", f"from {low:g} to {high:g} by `fedadb tune`, on a {scale} scale"
    yield "read by", setting.read_by
    yield "changes", setting.affects


def _list_settings(settings: "Iterable[Setting]") -> None:
    lines = Table.grid(padding=(0, 2))
    for setting in settings:
        lines.add_row(f"[bold]{setting.key}[/bold]", setting.default, escape(setting.meaning))
    console.print(lines)


def _list_choices(key: str) -> None:
    from fedadb.experiment.declarations import choices

    lines = Table.grid(padding=(0, 2))
    for name, declaration in choices(key).items():
        lines.add_row(f"  [bold]{name}[/bold]", escape(declaration.summary))
    console.print(lines)


def _show_choice(key: str, name: str) -> None:
    """An algorithm, a filter, … by its name: what it does, and its settings."""
    from fedadb.experiment.declarations import choices
    from fedadb.experiment.meanings import all_settings

    summary = choices(key)[name].summary
    _print(f'[bold]{key} = "{name}"[/bold]: {escape(summary)}')
    own = [s for s in all_settings() if s.owner == name and s.key.rpartition(".")[0] == key]
    _list_settings(own)


def _named(name: str) -> list[str]:
    """The settings that can name a class by this name: `sgd` is of clients and of the server."""
    from fedadb.experiment.declarations import CHOSEN, choices

    return [key for key in CHOSEN if name in choices(key)]


def _unknown(topic: str) -> str:
    import difflib

    from fedadb.cli.completion import topics
    from fedadb.experiment.validation import near_settings

    near = difflib.get_close_matches(topic.lower(), topics()) or near_settings(topic)
    hint = f"did you mean {' or '.join(near)}?" if near else "`fedadb explain` lists all settings"
    return f"{topic!r} is not a setting, a table or a name; {hint}"


def _print(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=False)
