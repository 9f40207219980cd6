"""Checks on what sites send back, before the server uses it."""

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

MEASUREMENT = re.compile(r"measured/[a-z_]{1,40}")
NUMBERS = (torch.float32, torch.float64, torch.int64, torch.int32)


def check_reply(
    tensors: Mapping[str, Tensor], w: Vector, rows: int, norm_bound: float | None
) -> Reply:
    """The reply in the tensors, or a Fault that says what is wrong with it.

    Args:
        tensors: What the site sent.
        w: The weights that the site received.
        rows: The site's number of rows.
        norm_bound: The largest accepted ‖w_k − w‖; None: any finite one.
    """
    for name, tensor in tensors.items():  # types first: nothing is computed with wrong ones
        if name.startswith("w/"):
            if tensor.dtype != w.flat.dtype:
                raise Fault(f"{name} is {tensor.dtype}; the model's weights are {w.flat.dtype}")
        elif name == "examples":
            if tensor.dtype != torch.int64 or tensor.ndim:
                raise Fault(f"examples is {tensor.dtype}; it must be one whole number")
        elif not MEASUREMENT.fullmatch(name) or tensor.ndim or tensor.dtype not in NUMBERS:
            raise Fault(f"{name[:60]!r} is not part of a reply")
    reply = unpack(Reply, tensors, w.layout)
    if not reply.w.flat.isfinite().all():
        raise Fault("its weights are not finite")
    if int(reply.examples) != rows:
        raise Fault(f"it claims {int(reply.examples)} rows, but has {rows}")
    w_k = reply.w.map(lambda flat: flat.to(w.flat.device))
    distance = float((w_k - w).norm())
    if not math.isfinite(distance) or (norm_bound is not None and distance > norm_bound):
        raise Fault(
            f"its weights are {distance:.4g} away from the received ones; deployment.norm_bound "
            f"is {norm_bound}"
        )
    return Reply(w_k, reply.examples, dict(sorted(reply.measured.items())))


class SiteCounts(NamedTuple):
    """A site's evaluation of a model on its own test images."""

    loss: float  # summed over the images
    correct: list[int]  # per class
    rows: list[int]  # per class


def check_counts(table: Mapping[str, Any], classes: int) -> SiteCounts:
    """The site's evaluation, or a Fault that says what is wrong with it."""
    try:
        counts = SiteCounts(float(table["loss"]), list(table["correct"]), list(table["rows"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(f"its evaluation is incomplete: {error}") from error
    whole = all(type(n) is int and n >= 0 for n in counts.correct + counts.rows)
    if not whole or not len(counts.correct) == len(counts.rows) == classes:
        raise Fault(f"its evaluation does not count {classes} classes")
    if any(c > n for c, n in zip(counts.correct, counts.rows, strict=True)):
        raise Fault("it claims more correct predictions than test images")
    if not sum(counts.rows):
        raise Fault("it has no test images")
    if not math.isfinite(counts.loss):
        raise Fault("the loss on its test images is not finite")
    return counts
