"""The command `init`: a commented experiment file for the data that one has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedadb.cli.completion import complete_dataset
from fedadb.cli.terminal import show_message, show_progress
from fedadb.core.errors import BadInput

if TYPE_CHECKING:
    from fedadb.core.data import Splits
    from fedadb.experiment.config import Experiment

# The settings in the file, by table.
KEYS = {
    "": ("dataset", "model", "algorithm", "rounds", "seed", "validation"),
    "federation": ("clients", "participation", "partition"),
    "local": ("epochs", "batch_size", "lr"),
}
# Those that are comments in it, with a value or None for the experiment's: each method has a
# learning rate of its own, and finding it takes validation rows.
COMMENTED = {"validation": 0.1, "local.lr": None}


def init(
    data: Annotated[
        str,
        typer.Argument(
            help="What you have: a folder with one subfolder of images per class, an .npz or .csv "
            "file (FILE.csv#COLUMN names the column of the labels), or the name of a dataset.",
            autocompletion=complete_dataset,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Look at data, and write a commented experiment file for them."""
    from fedadb.experiment.dataset_name import check_dataset

    if out.exists():
        raise BadInput(f"--out {str(out)!r} exists; name another file, or delete it")
    dataset = check_dataset(_dataset(data))
    from fedadb import datasets
    from fedadb.datasets import DATASETS
    from fedadb.experiment.config import Experiment
    from fedadb.storage.files import write_atomically

    given: dict[str, Any] = {"dataset": dataset}
    if datasets.present(dataset) or dataset not in DATASETS:
        splits = datasets.load(dataset, show_progress)
        given |= _settings(dataset, splits)
        e, command = Experiment.read(given), f"fedadb run {out}"
        about = _describe(e, splits)
    else:
        e, command = Experiment.read(given), f"fedadb data fetch {dataset}"
        about = f"{dataset} is not on this machine yet."
    write_atomically(out, experiment_text(e.table(), about).encode())
    show_message(f"{about}\nWrote {out}. Next: {command}")
    show_message(f"To compare methods: fedadb compare {out} --algorithms fedavg,fedadb")


def experiment_text(
    table: Mapping[str, Any],
    about: str,
    tables: Mapping[str, Sequence[str]] = KEYS,
    commented: Mapping[str, Any] = COMMENTED,
) -> str:
    """The main settings of a resolved experiment as TOML, each with its meaning above it."""
    from fedadb.experiment.meanings import all_settings

    meanings = {setting.key: setting.meaning for setting in all_settings() if not setting.owner}
    lines = [
        f"# {about}",
        "# `fedadb explain KEY` says more about a setting, and lists the others.",
    ]
    for name, keys in tables.items():
        values = table[name] if name else table
        lines += ["", f"[{name}]"] if name else [""]
        for key in keys:
            dotted = f"{name}.{key}" if name else key
            lines += wrap(meanings[dotted], 96, initial_indent="# ", subsequent_indent="# ")
            value: Any = commented.get(dotted) or values[key]
            if key in ("model", "algorithm"):
                value = value["name"]  # the settings of each are its defaults
            line = f"{key} = {_inline(value)}"
            lines.append(f"# {line}" if dotted in commented else line)
    return "\n".join(lines) + "\n"


def _dataset(given: str) -> str:
    """The setting `dataset` for what the user has: a path becomes folder:, npz: or csv:PATH."""
    path = Path(given).expanduser()
    if path.is_dir():
        return f"folder:{given}"
    ending = given.partition("#")[0].lower()
    kind = next((kind for kind in ("npz", "csv") if ending.endswith(f".{kind}")), None)
    return f"{kind}:{given}" if kind and ":" not in given else given


def _settings(dataset: str, splits: "Splits") -> dict[str, Any]:
    """Own data get settings by their size; the other datasets have their defaults."""
    from fedadb.experiment.sizes import settings_for

    return settings_for(len(splits.train.y), splits.spec) if ":" in dataset else {}


def _describe(e: "Experiment", splits: "Splits") -> str:
    from fedadb.experiment import build

    rows = [len(part) for part in build.partition(e, splits)]
    shape = "×".join(map(str, splits.spec.shape))
    return (
        f"{len(splits.train.y)} training and {len(splits.test.y)} test rows of shape {shape}, "
        f"{len(splits.classes)} classes; {len(rows)} clients have {min(rows)} to {max(rows)} rows."
    )


def _inline(value: Any) -> str:
    """A value on one line; a table that has only a name becomes the name."""
    from fedadb.experiment.ranges import to_toml

    if isinstance(value, Mapping):
        if list(value) == ["name"]:
            return to_toml(value["name"])
        return "{" + ", ".join(f"{key} = {_inline(one)}" for key, one in value.items()) + "}"
    return to_toml(tuple(value) if isinstance(value, list) else value)
