"""rounds.jsonl: one JSON record per round."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedadb.core.errors import Fault

Record = dict[str, Any]
REQUIRED = ("round", "accuracy", "loss", "class_accuracy", "clients", "lr", "seconds")
"""The keys of every record; algorithms add their own."""


def append_record(path: Path, record: Record) -> Record:
    """Append the record to the file, and return it as `read_records` will."""
    plain: Record = {key: _without_nan(value) for key, value in record.items()}
    try:
        with path.open("a") as file:
            file.write(json.dumps(plain) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return plain


def read_records(path: Path) -> list[Record]:
    """All records of the file; an incomplete last line is ignored."""
    if not path.exists():
        return []
    records: list[Record] = []
    try:
        for text in path.read_text(encoding="utf-8").split("\n")[:-1]:
            records.append(json.loads(text))  # noqa: PERF401  # the error names the line
    except ValueError as error:  # not JSON, or not UTF-8
        raise Fault(f"{path} is damaged: line {len(records) + 1}: {error}") from error
    for t, record in enumerate(records, start=1):
        if not isinstance(record, dict) or record.get("round") != t:
            raise Fault(f"{path} is damaged: line {t} is not round {t}")
    return records


def ends_complete(path: Path) -> bool:
    """Whether the last line was written completely."""
    return not path.exists() or path.read_bytes()[-1:] in (b"\n", b"")


def truncate_records(path: Path, rounds: int) -> list[Record]:
    """Delete the records after the given number of rounds, and return those that remain."""
    records = read_records(path)[:rounds]
    if len(records) < rounds:
        raise Fault(
            f"{path} lacks rounds that the checkpoint beside it has; "
            "delete checkpoint.safetensors to start over"
        )
    with path.open("ab+") as file:
        file.seek(0)
        for _ in range(rounds):
            file.readline()
        file.truncate()
    return records


def mean_measurements(measured: Sequence[Mapping[str, float]]) -> Record:
    """The mean of each measurement over the clients that have it; nan if none has."""
    names = dict.fromkeys(name for one in measured for name in one)
    means = {}
    for name in names:
        known = [one[name] for one in measured if name in one and not math.isnan(one[name])]
        means[name] = math.fsum(known) / len(known) if known else math.nan
    return means


def _without_nan(value: Any) -> Any:
    """JSON has no nan and no infinity: both become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_without_nan(v) for v in value] if isinstance(value, (list, tuple)) else value
