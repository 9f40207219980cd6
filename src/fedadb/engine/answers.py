"""What comes back of a client's round, wherever it was: tensors by name, or an error in words."""

import traceback
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedadb.core.algorithm import Reply
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.vector import Layout

KINDS: dict[str, type[Exception]] = {"BadInput": BadInput, "Fault": Fault}


def pack_answer(reply: Reply, memory: Any) -> dict[str, Tensor]:
    return pack(reply, "reply") | pack(memory, "memory")


def unpack_answer(
    tensors: Mapping[str, Tensor], memory_kind: type[Any], layout: Layout
) -> tuple[Reply, Any]:
    """The reply, and what the client remembers; an empty tuple if it is nothing."""
    parts: dict[str, dict[str, Tensor]] = {"reply": {}, "memory": {}}
    for path, tensor in tensors.items():
        part, _, name = path.partition("/")
        parts[part][name] = tensor
    memory = unpack(memory_kind, parts["memory"], layout)
    return unpack(Reply, parts["reply"], layout), memory


def in_words(error: Exception) -> tuple[str, str]:
    """Its kind and its sentence; of a bug, all there is to know about where it is."""
    if isinstance(error, (BadInput, Fault)):
        return type(error).__name__, str(error)
    return "Exception", "".join(traceback.format_exception(error))


def as_error(kind: str, text: str) -> Exception:
    return KINDS.get(kind, RuntimeError)(text)
