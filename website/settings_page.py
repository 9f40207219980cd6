"""The reference of all settings, from the fields that hold them."""

from collections.abc import Iterable, Iterator

from fedadb.experiment.declarations import CHOSEN, choices
from fedadb.experiment.meanings import Setting, all_settings

OPENING = """# Settings

Every setting of an experiment, from the field that holds it; `fedadb explain KEY` prints the same.
[Experiments and runs](../quickstart.md) explains how to give them.

- **changes:** what another value changes. A run can resume with other values of settings that
  change no result.
- **agreed:** the server and the sites of a real federation must have the same value.
- Lists of names are shortened here: what a name stands for follows below the tables.
"""


def settings_page() -> str:
    """The page as Markdown."""
    settings = [setting for setting in all_settings() if setting.values]  # others are tables
    general = [setting for setting in settings if not setting.owner]
    tables = dict.fromkeys(setting.key.rpartition(".")[0] for setting in general)
    lines = [OPENING]
    for table in tables:
        lines += [f"## [{table}]\n" if table else "## The experiment\n"]
        lines += _rows(s for s in general if s.key.rpartition(".")[0] == table)
    for key in CHOSEN:
        lines += [f"## {key} by name\n"]
        for name, declaration in choices(key).items():
            lines += [f'### {key} = "{name}"\n', f"{declaration.summary}\n"]
            inside = [s for s in settings if s.owner == name and s.key.rpartition(".")[0] == key]
            lines += _rows(inside) if inside else ["It has no settings.\n"]
    return "\n".join(lines)


def _rows(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| key | meaning | default | values | changes |"
    yield "| --- | --- | --- | --- | --- |"
    for setting in settings:
        if not setting.meaning:
            raise ValueError(f"{setting.key} has no meaning: its field needs a comment")
        cells = [
            f"`{setting.key}`",
            setting.meaning,
            f"`{setting.default}`" if setting.default else "must be given",
            "a name" if setting.key in (*CHOSEN, "dataset") else setting.values,
            f"{setting.affects}; agreed" if setting.role.shared else setting.affects,
        ]
        if setting.by_dataset:
            cells[2] += ", or by dataset"
        if setting.searched:
            cells[3] += f"; searched from {setting.searched.low:g} to {setting.searched.high:g}"
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
