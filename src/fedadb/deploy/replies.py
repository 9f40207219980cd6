"""A reply from afar, looked at before it is used."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.core.algorithm import Reply
from fedadb.core.errors import Fault
from fedadb.core.packing import unpack
from fedadb.core.vector import Vector

MEASURED = re.compile(r"measured/[a-z_]{1,40}")  # names of numbers for the record
REAL = (torch.float32, torch.float64, torch.int64, torch.int32)


def checked(tensors: Mapping[str, Tensor], w: Vector, rows: int, norm_bound: float | None) -> Reply:
    """The reply of a site that has so many rows and was sent w; a Fault says what is wrong."""
    for name, tensor in tensors.items():  # before anything is computed with them
        if name.startswith("w/"):
            if tensor.dtype != w.flat.dtype:
                raise Fault(f"{name} is {tensor.dtype}; the model's weights are {w.flat.dtype}")
        elif name == "examples":
            if tensor.dtype != torch.int64 or tensor.ndim:
                raise Fault(f"examples is {tensor.dtype}; it must be one whole number")
        elif not MEASURED.fullmatch(name) or tensor.ndim or tensor.dtype not in REAL:
            raise Fault(f"{name[:60]!r} is not what a reply has")
    reply = unpack(Reply, tensors, w.layout)
    if not reply.w.flat.isfinite().all():
        raise Fault("its weights are not finite")
    if int(reply.examples) != rows:
        raise Fault(f"it says that it trained on {int(reply.examples)} rows; it has {rows}")
    here = reply.w.map(lambda flat: flat.to(w.flat.device))
    moved = float((here - w).norm())
    if not math.isfinite(moved) or (norm_bound is not None and moved > norm_bound):
        raise Fault(
            f"its weights are {moved:.4g} from what was sent, and deployment.norm_bound is "
            f"{norm_bound}"
        )
    return Reply(here, reply.examples, dict(sorted(reply.measured.items())))


class Tested(NamedTuple):
    """What a site says of a model."""

    loss: float  # summed over its test images
    right: list[int]  # by class
    rows: list[int]


def tested(said: Mapping[str, Any], classes: int) -> Tested:
    """What a site found, if it can be so; a Fault says what is wrong."""
    try:
        found = Tested(float(said["loss"]), list(said["right"]), list(said["rows"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(f"it tested the model and did not say what came of it: {error}") from error
    whole = all(type(n) is int and n >= 0 for n in found.right + found.rows)
    if not whole or not len(found.right) == len(found.rows) == classes:
        raise Fault("it tested the model and counted something else than classes")
    if any(r > n for r, n in zip(found.right, found.rows, strict=True)) or not sum(found.rows):
        raise Fault("it says that more test images are right than there are, or that it has none")
    if not math.isfinite(found.loss):
        raise Fault("the loss on its test images is not finite")
    return found
