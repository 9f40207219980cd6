"""Append-only JSON lines, each with the hash of the line before it.

A line that is changed, removed or inserted breaks the chain for everyone who reads it. Whoever can
write the file can also make a new chain from there on, or cut off its end. The hash of the last
line, kept somewhere else, proves that neither happened.
"""

import datetime as dt
import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from fedadb.core.errors import Fault
from fedadb.storage.files import parse_json

START = "0" * 64  # what the first line has instead of a hash
BLOCK = 16 << 10  # bytes to read at first to find the last line
REPAIRED = "repaired"  # the event after a line that was not written completely

Entry = dict[str, Any]


class Chain(NamedTuple):
    """A chain that has been verified."""

    entries: list[Entry]
    head: str  # the hash of the last entry
    torn: int  # bytes of a last line that was not written completely


def append_entry(path: Path, event: str, **fields: Any) -> str:
    """Append an entry, and return its hash. Several processes may append to the same file.

    The entry is on the disk when this returns. If a process was killed while it wrote, the next
    entry replaces what it left, and says so.
    """
    import fcntl  # Windows lacks it: logs can be verified there, and no federation runs

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        last, torn = _last_line(file)
        number, head = _position(path, last)
        if torn:
            file.truncate(file.seek(-len(torn), os.SEEK_END))
            digest = hashlib.sha256(torn).hexdigest()
            number, head = (
                number + 1,
                _write(file, number + 1, head, REPAIRED, {"bytes": len(torn), "sha256": digest}),
            )
        return _write(file, number + 1, head, event, fields)


def _write(file: BinaryIO, number: int, head: str, event: str, fields: Entry) -> str:
    time = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    entry = {"entry": number, "time": time, "event": event, **fields, "previous": head}
    digest = _digest(entry)
    file.seek(0, os.SEEK_END)
    file.write(_line({**entry, "hash": digest}))
    file.flush()
    os.fsync(file.fileno())
    return digest


def _last_line(file: BinaryIO) -> tuple[bytes, bytes]:
    """The last complete line of the file, and what follows it."""
    size, length = file.seek(0, os.SEEK_END), BLOCK
    while True:
        file.seek(max(0, size - length))
        tail = file.read()
        if length >= size or tail.count(b"\n") > 1:
            break
        length *= 2  # a line may be of any length
    complete, newline, torn = tail.rpartition(b"\n")
    return complete.rpartition(b"\n")[2] if newline else b"", torn


def _position(path: Path, last: bytes) -> tuple[int, str]:
    """The number and the hash of the last entry."""
    if not last:
        return 0, START
    try:
        entry = parse_json(last)
        return int(entry["entry"]), str(entry["hash"])
    except (ValueError, KeyError, TypeError) as error:
        raise Fault(
            f"{path} is damaged: its last line is not an entry; move it away to begin a new one"
        ) from error


def read_chain(path: Path) -> Chain:
    """All entries of the file; a Fault that names the first line at which the chain is broken."""
    *lines, torn = path.read_bytes().split(b"\n")
    entries: list[Entry] = []
    head = START
    for number, line in enumerate(lines, start=1):
        entry = _checked(path, number, line, head)
        entries.append(entry)
        head = entry["hash"]
    return Chain(entries, head, len(torn))


def _checked(path: Path, number: int, line: bytes, head: str) -> Entry:
    try:
        entry = parse_json(line)
        stated = entry["hash"]
        dt.datetime.fromisoformat(entry["time"])
        if not isinstance(entry["event"], str):
            raise TypeError("an event is a text")
        bare = {key: value for key, value in entry.items() if key != "hash"}
        # The same bytes, so that nothing is hidden in a line, such as a second value of a key.
        same = _line(entry) == line + b"\n" and _digest(bare) == stated
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Fault(f"{path}: line {number} is not an entry") from error
    if not same:
        raise Fault(f"{path}: line {number} was changed after it was written")
    if entry.get("previous") != head or entry.get("entry") != number:
        if number == 1:
            raise Fault(f"{path}: line 1 is not the first entry of a log: lines before it are gone")
        raise Fault(f"{path}: line {number} does not follow line {number - 1}")
    return dict(entry)


def _digest(entry: Entry) -> str:
    return hashlib.sha256(_line(entry)).hexdigest()


def _line(entry: Entry) -> bytes:
    return json.dumps(entry, allow_nan=False).encode() + b"\n"
