"""rounds.jsonl: what happened, one line a round."""

import json
import math
from pathlib import Path
from typing import Any

from fedadb.core.errors import Fault

Record = dict[str, Any]


def append(path: Path, record: Record) -> None:
    with path.open("a") as file:
        file.write(json.dumps({key: _plain(value) for key, value in record.items()}) + "\n")


def read(path: Path) -> list[Record]:
    """The rounds in the file; a last line that was not written to its end does not count."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise Fault(f"{path} is damaged: {error}") from error


def keep(path: Path, rounds: int) -> list[Record]:
    """Cut the file after that many rounds, and return them."""
    records = read(path)[:rounds]
    if [record["round"] for record in records] != list(range(1, rounds + 1)):
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


def _plain(value: Any) -> Any:
    """JSON has no nan; null stands for what could not be measured."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
