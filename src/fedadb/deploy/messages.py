"""The content of messages between server and sites: tensors as safetensors, the rest as JSON.

Neither can hold code. A Flower message carries both: `tensors` are bytes, `table` a JSON text.
"""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import safetensors.torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType, RecordDict
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.errors import Fault

VERSION = version("fedadb")
# the types of messages
QUERY, TRAIN, EVALUATE = MessageType.QUERY, MessageType.TRAIN, MessageType.EVALUATE
# of secure aggregation: a site's key for the run, the keys of all sites, and the run's end
KEY_ACTION, ROSTER_ACTION, END_ACTION = "key", "roster", "end"
KEY, ROSTER, END = (f"{QUERY}.{action}" for action in (KEY_ACTION, ROSTER_ACTION, END_ACTION))
NO_ROUND = Round(0, 0, 0, 0)  # of a message that belongs to none
TENSORS, TABLE, BYTES = "tensors", "table", "safetensors"  # the records' keys
SMALL = 1 << 20  # bytes of tensors that travel in one piece
MAX_TABLE = 1 << 20  # characters of a table's JSON
MAX_VALUES = 20_000  # of an input that is not an image: a request has their bounds in its table
MAX_TEXT = 400  # characters of a text from the other side that are shown or recorded


class Request(NamedTuple):
    """What the server tells a site with every message."""

    run: str  # the run's identity: a site keeps the memories of different runs apart
    client: int  # k
    last_used: int  # the last round in which the server used this client's reply; 0: none
    round: Round
    settings: Mapping[str, Any]  # the shared settings, which the site compares with its own
    data: Mapping[str, Any]  # the DataSpec, as a table
    version: str = VERSION  # of fedadb
    attempt: int = 0  # of secure aggregation: raised if masks cannot be used again
    keys: Mapping[str, Any] | None = None  # of all sites for the run, by name, with signatures


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    # safetensors refuses tensors that share memory, so each is copied.
    return safetensors.torch.save({k: t.detach().cpu().clone() for k, t in tensors.items()})


def tensors_from_bytes(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # the bytes come from the other side, and may be anything
        raise Fault(f"the message's tensors are not safetensors: {shown(error)}") from error


def tensor_record(tensors: Mapping[str, Tensor]) -> ArrayRecord | ConfigRecord:
    """The tensors as a record; several messages can share one."""
    return bytes_record(tensors_to_bytes(tensors))


def bytes_record(data: bytes) -> ArrayRecord | ConfigRecord:
    """Tensors that are bytes already, as a record.

    Flower sends an array as three objects, with a request each, and in pieces if it is large. A
    value of a table travels with its table, and saves the time of two requests at every site.
    """
    return ConfigRecord({BYTES: data}) if len(data) <= SMALL else array_record(data)


def array_record(data: bytes) -> ArrayRecord:
    return ArrayRecord({BYTES: Array(dtype="uint8", shape=(len(data),), stype=BYTES, data=data)})


def make_content(
    table: Mapping[str, Any], tensors: ArrayRecord | ConfigRecord | None = None
) -> RecordDict:
    """The content of a message; an empty table is left out."""
    records = RecordDict({TABLE: ConfigRecord({"json": json.dumps(table)})} if table else {})
    if tensors is not None:
        records[TENSORS] = tensors
    return records


def table_in(records: RecordDict) -> dict[str, Any]:
    """The table of a message's content, or a Fault, whatever the content is."""
    try:
        text = records.config_records[TABLE]["json"]
        if not isinstance(text, str) or len(text) > MAX_TABLE:
            raise ValueError(f"it must be a text of at most {MAX_TABLE} characters")
        table = json.loads(text, parse_constant=_refuse_constant)
    except Exception as error:  # among them RecursionError, for deeply nested lists
        raise Fault(f"the message has no valid {TABLE!r}: {shown(error)}") from error
    if not isinstance(table, dict):
        raise Fault(f"the message's {TABLE!r} is a {type(table).__name__}; it must be a table")
    return table


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def request_in(records: RecordDict) -> Request:
    """The request in a message's content, or a Fault, whatever the content is."""
    table = table_in(records)
    try:
        request = Request(**{**table, "round": Round(*table["round"])})
    except (KeyError, TypeError) as error:
        raise Fault(f"the message has no valid request: {shown(error)}") from error
    *whole, lr_factor = request.round
    valid = (
        isinstance(request.run, str)
        and all(
            type(n) is int for n in (request.client, request.last_used, request.attempt, *whole)
        )
        and type(lr_factor) in (int, float)
        and isinstance(request.settings, dict)
        and isinstance(request.data, dict)
        and (request.keys is None or isinstance(request.keys, dict))
    )
    if not valid:
        raise Fault("the message has no valid request: a field has the wrong type")
    return request


def tensors_in(records: RecordDict) -> dict[str, Tensor]:
    """The tensors of a message's content, or a Fault, whatever the content is."""
    return tensors_from_bytes(tensor_bytes_in(records))


def tensor_bytes_in(records: RecordDict) -> bytes:
    """The tensors of a message's content as they arrived, or a Fault."""
    try:
        if TENSORS in records.config_records:
            data = records.config_records[TENSORS][BYTES]
        else:
            data = records.array_records[TENSORS][BYTES].data
        if not isinstance(data, bytes):
            raise TypeError("bytes: its tensors are something else")
    except Exception as error:
        raise Fault(f"the message has no {shown(error)}") from error
    return data


def shown(text: object, length: int = MAX_TEXT) -> str:
    """A text from the other side as it may be shown and recorded: printable, and not too long.

    Control characters could change what a terminal shows, and so could characters that reverse
    the direction of the text. Neither is printable.
    """
    return "".join(c if c.isprintable() else " " for c in str(text)[:length])
