"""rounds.jsonl: what happened, one line a round."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedadb.core.errors import Fault

Record = dict[str, Any]
# What every line has; algorithms add to it.
ALWAYS = ("round", "accuracy", "loss", "class_accuracy", "clients", "lr", "seconds")


def append(path: Path, record: Record) -> Record:
    """Add a line, and return what it will be read as."""
    plain: Record = {key: _plain(value) for key, value in record.items()}
    try:
        with path.open("a") as file:
            file.write(json.dumps(plain) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return plain


def read(path: Path) -> list[Record]:
    """The rounds in the file; a last line that was not written to its end does not count."""
    if not path.exists():
        return []
    rounds: list[Record] = []
    try:
        for text in path.read_text(encoding="utf-8").split("\n")[:-1]:
            rounds.append(json.loads(text))  # noqa: PERF401  # so that an error knows its line
    except ValueError as error:  # not JSON, or not text
        raise Fault(f"{path} is damaged: line {len(rounds) + 1}: {error}") from error
    for t, line in enumerate(rounds, start=1):
        if not isinstance(line, dict) or line.get("round") != t:
            raise Fault(f"{path} is damaged: line {t} is not round {t}")
    return rounds


def ends_whole(path: Path) -> bool:
    """Whether the last line was written to its end."""
    return not path.exists() or path.read_bytes()[-1:] in (b"\n", b"")


def keep(path: Path, rounds: int) -> list[Record]:
    """Cut the file after that many rounds, and return them."""
    records = read(path)[:rounds]
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


def mean(measured: Sequence[Mapping[str, float]]) -> Record:
    """What the clients measured, averaged over those that could; nan where none could."""
    names = dict.fromkeys(name for one in measured for name in one)
    means = {}
    for name in names:
        known = [one[name] for one in measured if name in one and not math.isnan(one[name])]
        means[name] = math.fsum(known) / len(known) if known else math.nan
    return means


def _plain(value: Any) -> Any:
    """JSON has no nan; null stands for what could not be measured."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
