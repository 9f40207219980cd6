"""Atomic file writes and exclusive locks on directories."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from fedadb.core.errors import BadInput


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file in one step, so that a crash leaves either the old one or the new one."""
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
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes out of the directory.

    The operating system releases the lock when this process ends, even if it is killed.
    """
    lock = filelock.FileLock(directory / ".lock", timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise BadInput(f"another process is using {directory}") from error
    try:
        yield
    finally:
        lock.release()
