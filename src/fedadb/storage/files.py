"""Atomic file writes, checked JSON files, and exclusive locks on directories."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import filelock
from pydantic import TypeAdapter, ValidationError

from fedadb.core.errors import BadInput, Fault

T = TypeVar("T")


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the file in one step, so that a crash leaves either the old one or the new one.

    `mode` says who may read the new one, as far as the process's umask allows it.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:  # also Ctrl-C
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def create_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Create a file with its final mode, so that others can never read a secret."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """As `create_file`, in place of an older file; a crash leaves one of them."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    create_file(partial, content, mode)
    partial.replace(path)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError if it is not JSON, or has NaN or infinite numbers."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def read_json(path: Path, form: TypeAdapter[T]) -> T:
    """The content of a JSON file that must have the given form; a Fault if it has not."""
    try:
        return form.validate_python(parse_json(path.read_bytes()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Fault(f"{path} is damaged: {where}: {first['msg']}") from error
    except ValueError as error:
        raise Fault(f"{path} is damaged: {error}") from error


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
