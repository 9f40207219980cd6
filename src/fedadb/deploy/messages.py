"""The content of messages between server and sites: tensors as safetensors, the rest as JSON.

Neither can hold code. A Flower message carries both: `tensors` is one array of bytes, `table` a
JSON text.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import safetensors.torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors import SafetensorError
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.errors import Fault

TENSORS, TABLE, BYTES = "tensors", "table", "safetensors"  # the records' keys


class Request(NamedTuple):
    """What the server tells a site with every message."""

    run: str  # the run's identity: a site keeps the memories of different runs apart
    client: int  # k
    last_used: int  # the last round in which the server used this client's reply; 0: none
    round: Round
    settings: Mapping[str, Any]  # the shared settings, which the site compares with its own
    data: Mapping[str, Any]  # the DataSpec, as a table


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    # safetensors refuses tensors that share memory, so each is copied.
    return safetensors.torch.save({k: t.detach().cpu().clone() for k, t in tensors.items()})


def tensors_from_bytes(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise Fault(f"the message's tensors are not safetensors: {error}") from error


def tensor_record(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """The tensors as a record; several messages can share one."""
    return bytes_record(tensors_to_bytes(tensors))


def bytes_record(data: bytes) -> ArrayRecord:
    return ArrayRecord({BYTES: Array(dtype="uint8", shape=(len(data),), stype=BYTES, data=data)})


def make_content(table: Mapping[str, Any], tensors: ArrayRecord | None = None) -> RecordDict:
    """The content of a message."""
    records = RecordDict({TABLE: ConfigRecord({"json": json.dumps(table)})})
    if tensors is not None:
        records[TENSORS] = tensors
    return records


def table_in(records: RecordDict) -> dict[str, Any]:
    """The table of a message's content."""
    try:
        table = json.loads(str(records.config_records[TABLE]["json"]))
    except (KeyError, ValueError) as error:
        raise Fault(f"the message has no valid {TABLE!r}: {error}") from error
    if not isinstance(table, dict):
        raise Fault(f"the message's {TABLE!r} is {table!r}; it must be a table")
    return table


def request_in(records: RecordDict) -> Request:
    """The request in a message's content."""
    table = table_in(records)
    return Request(**{**table, "round": Round(*table["round"])})


def tensors_in(records: RecordDict) -> dict[str, Tensor]:
    """The tensors of a message's content."""
    try:
        array = records.array_records[TENSORS][BYTES]
    except KeyError as error:
        raise Fault(f"the message has no {error}") from error
    return tensors_from_bytes(array.data)
