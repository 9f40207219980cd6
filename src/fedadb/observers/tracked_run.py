"""A run as trackers know it: its settings, the numbers of its records, and its name there."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from fedadb.core.errors import BadInput
from fedadb.experiment.toml_tables import flatten
from fedadb.storage.files import read_json, write_atomically
from fedadb.storage.records import Record
from fedadb.storage.run_directory import TRACKED

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

IDS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


def require_package(name: str) -> None:
    """Raise BadInput unless a tracker's package is installed. Its name is also the extra's."""
    try:
        import_module(name)
    except ImportError as error:
        raise BadInput(
            f"tracking with {name} needs a package: `pip install 'fedadb[{name}]'`"
        ) from error


def settings(experiment: "Experiment") -> dict[str, Any]:
    """Every setting by its dotted name."""
    return flatten(experiment.table())


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a record by name; each element of a list has a name of its own."""
    for key, value in record.items():
        if key in ("round", "clients"):
            continue
        if isinstance(value, list):
            yield from ((f"{key}/{i}", v) for i, v in enumerate(value) if v is not None)
        elif isinstance(value, (int, float)):
            yield key, value


def read_id(directory: Path, tracker: str) -> str | None:
    """The name that a tracker has given to the run; None if it does not know the run yet."""
    path = directory / TRACKED
    return read_json(path, IDS).get(tracker) if path.exists() else None


def write_id(directory: Path, tracker: str, name: str) -> None:
    path = directory / TRACKED
    known = read_json(path, IDS) if path.exists() else {}
    write_atomically(path, IDS.dump_json(known | {tracker: name}))
