"""rounds.jsonl: one JSON record per round."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import StrictFloat, StrictInt, StrictStr, TypeAdapter, ValidationError

from fedadb.core.errors import Fault
from fedadb.storage.files import parse_json

Record = dict[str, Any]
REQUIRED = ("round", "accuracy", "loss", "class_accuracy", "clients", "lr", "seconds")
"""The keys of every record; algorithms add their own."""

MOST = 2**63  # what a larger whole number counts, no run has
Number = Annotated[StrictInt, Ge(-MOST), Le(MOST)] | StrictFloat
Share = Annotated[Number, Ge(0), Le(1)]
FORMS: dict[str, TypeAdapter[Any]] = {
    "round": TypeAdapter(StrictInt),
    "accuracy": TypeAdapter(Share),
    "validation_accuracy": TypeAdapter(Share),
    "class_accuracy": TypeAdapter(list[Share | None]),
    "domain_accuracy": TypeAdapter(list[Share | None]),
    "clients": TypeAdapter(list[StrictInt]),
    "lost": TypeAdapter(dict[StrictStr, StrictStr]),
    "lr": TypeAdapter(Number),
    "seconds": TypeAdapter(Number | None),  # None: secret, because it tells who took part
    "bytes_down": TypeAdapter(Number),
    "bytes_up": TypeAdapter(Number),
    "epsilon": TypeAdapter(Annotated[Number, Ge(0)]),
    "delta": TypeAdapter(Share),
    "privacy": TypeAdapter(StrictStr),
}
MEASUREMENT: TypeAdapter[Any] = TypeAdapter(Number | None)  # the form of every other key
LISTS = ("class_accuracy", "domain_accuracy")  # of one length in all records of a run


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
    """All records of the file, checked; an incomplete last line is ignored."""
    if not path.exists():
        return []
    records: list[Record] = []
    try:
        for t, text in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
            record = parse_json(text)
            _check(record, t, records)
            records.append(record)
    except ValueError as error:  # not JSON, not UTF-8, or not a record
        raise Fault(f"{path} is damaged: line {len(records) + 1}: {error}") from error
    return records


def _check(record: Any, t: int, earlier: Sequence[Record]) -> None:
    """Raise ValueError unless the record is one of round t that fits the earlier ones."""
    if not isinstance(record, dict) or record.get("round") != t:
        raise ValueError(f"it is not round {t}")
    for key, value in record.items():
        try:
            FORMS.get(key, MEASUREMENT).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"{key}: {error.errors()[0]['msg']}") from error
    for key in LISTS if earlier else ():
        if len(record.get(key, ())) != len(earlier[0].get(key, ())):
            raise ValueError(f"{key} has another length than in round 1")


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


def privacy_statement(record: Record) -> str:
    """What a record promises, in words; "" if its run is not differentially private."""
    if "epsilon" not in record:
        return ""
    return f"ε = {record['epsilon']:.4g} at δ = {record['delta']:.3g} for {record['privacy']}"


def _without_nan(value: Any) -> Any:
    """JSON has no nan and no infinity: both become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_without_nan(v) for v in value] if isinstance(value, (list, tuple)) else value
