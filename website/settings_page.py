"""The reference of all settings, from the comments, types and defaults of their fields."""

from collections.abc import Iterable, Iterator

from fedadb.experiment.declarations import CHOSEN, TABLES, choices
from fedadb.experiment.meanings import Setting, all_settings

OPENING = """# Settings

Every setting of an experiment, from the fields that hold it. `fedadb explain KEY` says the same on
the command line. [Experiments and runs](../quickstart.md) explains how to give settings.

- **changes:** what a setting can change: the results, only what is recorded beside them, only
  their rounding, or nothing but how a run is carried out. A run can resume with other values of
  settings that change nothing.
- **agreed:** the server and the sites of a real federation must have the same value.
"""


def settings_page() -> str:
    """The page as Markdown."""
    shared = [setting for setting in all_settings() if not setting.owner]
    lines = [OPENING]
    for table in TABLES:
        lines.append(f"## [{table}]\n" if table else "## The experiment\n")
        inside = [s for s in shared if s.key.rpartition(".")[0] == table and s.key not in TABLES]
        lines += _table(inside)
    for key in CHOSEN:
        lines.append(f"## {key} by name\n")
        for name, declaration in choices(key).items():
            lines += [f'### {key} = "{name}"\n', f"{declaration.summary}\n"]
            own = [s for s in all_settings() if (s.owner, s.key.rpartition(".")[0]) == (name, key)]
            lines += _table(own) if own else ["It has no settings.\n"]
    return "\n".join(lines)


def _table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| key | meaning | default | allowed | changes |"
    yield "| --- | --- | --- | --- | --- |"
    for setting in settings:
        name = setting.key.rpartition(".")[2] if setting.owner else setting.key
        changes = setting.role.affects
        cells = [
            f"`{name}`",
            setting.meaning,
            "; ".join(filter(None, [_default(setting), setting.other_defaults])),
            _allowed(setting),
            f"{changes}; agreed" if setting.role.shared else changes,
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _allowed(setting: Setting) -> str:
    if not setting.searched:
        return setting.values
    return f"{setting.values}, searched from {setting.searched.low:g} to {setting.searched.high:g}"


def _default(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default else "required"
