"""The form of a reader, and how it gets its input as a file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedadb.core.errors import BadInput, Fault

REFUSED = (BadInput, Fault, OSError)


class Reader(NamedTuple):
    """A function that reads what others wrote, and inputs that it accepts."""

    read: Callable[[bytes, Path], Any]
    seeds: Sequence[bytes]
    share: float = 1.0  # of all inputs, relative to the other readers


def in_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """A reader of a file with this name."""

    def read_bytes(data: bytes, directory: Path) -> Any:
        path = directory / name
        path.write_bytes(data)
        return read(path)

    return read_bytes
