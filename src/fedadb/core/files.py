"""Files that are either there whole or not there, and directories with one owner."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedadb.core.errors import BadInput


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file in one move, so that a crash leaves the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Keep other processes out of the directory; the system lets go when this process ends."""
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"another process is at work in {directory}") from error
        yield
