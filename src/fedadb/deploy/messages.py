"""What travels between server and sites: tensors as safetensors, and an order as JSON.

Nothing that can be run is in either. A message of Flower holds both, `tensors` as one array of
bytes and `order` as text.
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

TENSORS, ORDER, BYTES = "tensors", "order", "safetensors"


class Order(NamedTuple):
    """What a site is asked to do its part of."""

    run: str  # which run: sites keep what they remember of each apart
    client: int  # k
    used: int  # the last round in which the client's reply was used; 0: none
    round: Round
    settings: Mapping[str, Any]  # of the experiment, which the site compares with its own
    task: Mapping[str, Any]  # what the images are and show


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    # Copied, because safetensors refuses tensors that share memory.
    return safetensors.torch.save({k: t.detach().cpu().clone() for k, t in tensors.items()})


def from_bytes(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise Fault(f"what came is not safetensors: {error}") from error


def payload(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return as_record(to_bytes(tensors))


def as_record(data: bytes) -> ArrayRecord:
    return ArrayRecord({BYTES: Array(dtype="uint8", shape=(len(data),), stype=BYTES, data=data)})


def content(about: Any, tensors: ArrayRecord | None = None) -> RecordDict:
    records = RecordDict({ORDER: ConfigRecord({"json": json.dumps(about)})})
    if tensors is not None:
        records[TENSORS] = tensors
    return records


def order_of(records: RecordDict) -> Order:
    table = about(records)
    return Order(**{**table, "round": Round(*table["round"])})


def about(records: RecordDict) -> dict[str, Any]:
    """What is said beside the tensors."""
    try:
        said = json.loads(str(records.config_records[ORDER]["json"]))
    except (KeyError, ValueError) as error:
        raise Fault(f"what came has no {ORDER} in it: {error}") from error
    if not isinstance(said, dict):
        raise Fault(f"what came says {said!r}, and should be a table")
    return said


def tensors_of(records: RecordDict) -> dict[str, Tensor]:
    try:
        array = records.array_records[TENSORS][BYTES]
    except KeyError as error:
        raise Fault(f"what came has no {error} in it") from error
    return from_bytes(array.data)
