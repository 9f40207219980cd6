"""A reply from afar, looked at before it is used."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedadb.core.algorithm import Reply
from fedadb.core.errors import Fault
from fedadb.core.packing import unpack
from fedadb.core.vector import Vector

MEASURED = 64  # numbers for the record; more is not a record


def checked(tensors: Mapping[str, Tensor], w: Vector, rows: int, norm_bound: float | None) -> Reply:
    """The reply of a site that has so many rows and was sent w; a Fault says what is wrong."""
    reply = unpack(Reply, tensors, w.layout)
    for name, tensor in tensors.items():
        if name.startswith("w/") and tensor.dtype != w.flat.dtype:
            raise Fault(f"{name} is {tensor.dtype}; the model's weights are {w.flat.dtype}")
    if not reply.w.flat.isfinite().all():
        raise Fault("its weights are not finite")
    if reply.examples.dtype != torch.int64 or reply.examples.ndim:
        raise Fault(f"examples is {reply.examples.dtype}; it must be one whole number")
    if int(reply.examples) != rows:
        raise Fault(f"it says that it trained on {int(reply.examples)} rows; it has {rows}")
    if len(reply.measured) > MEASURED or any(m.ndim for m in reply.measured.values()):
        raise Fault(f"measured has to be at most {MEASURED} numbers")
    here = reply.w.map(lambda flat: flat.to(w.flat.device))
    moved = float((here - w).norm())
    if norm_bound is not None and not moved <= norm_bound:
        raise Fault(
            f"its weights are {moved:.4g} from what was sent, and deployment.norm_bound is "
            f"{norm_bound:g}"
        )
    return Reply(here, reply.examples, dict(sorted(reply.measured.items())))
