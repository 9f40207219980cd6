"""Checks on what sites send back, before the server uses it."""

import math
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.core.algorithm import Reply
from fedadb.core.errors import Fault
from fedadb.core.packing import unpack
from fedadb.core.vector import Vector
from fedadb.deploy.messages import shown

MEASUREMENT = re.compile(r"measured/[a-z_]{1,40}")
NUMBERS = (torch.float32, torch.float64, torch.int64, torch.int32)


MAX_ROWS = 10**12  # of a site
MAX_MEASUREMENT = 1e38  # the mean of several stays finite


class CheckedReply(NamedTuple):
    """A valid reply, and how far the site's weights are from those that it received."""

    reply: Reply
    distance: float  # ‖w_k − w‖


def check_reply(
    tensors: Mapping[str, Tensor],
    w: Vector,
    rows: int,
    norm_bound: float | None,
    measures: Collection[str] = (),
) -> CheckedReply:
    """The reply in the tensors, or a Fault that says what is wrong with it.

    Args:
        tensors: What the site sent.
        w: The weights that the site received.
        rows: The site's number of rows.
        norm_bound: The largest accepted ‖w_k − w‖; None: any finite one.
        measures: The measurements that the algorithm declares; others are ignored.
    """
    for name, tensor in tensors.items():  # types first: nothing is computed with wrong ones
        if name.startswith("w/"):
            if tensor.dtype != w.flat.dtype:
                raise Fault(
                    f"{name[:60]} is {tensor.dtype}; the model's weights are {w.flat.dtype}"
                )
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
    measured = {
        name: value if abs(float(value)) <= MAX_MEASUREMENT else torch.tensor(math.nan)
        for name, value in sorted(reply.measured.items())
        if name in measures
    }
    return CheckedReply(Reply(w_k, reply.examples, measured), distance)


def cap_rows(rows: Sequence[int], max_share: float) -> list[int]:
    """The rows by which each site counts: none has more than that share of their sum.

    One or two sites count by all their rows, because a share of two says nothing about which of
    them is wrong.
    """
    if len(rows) < 3:
        return list(rows)
    share = max(max_share, 1 / len(rows))
    largest = sorted(rows, reverse=True)
    for capped, n in enumerate(largest):  # the number of sites with more rows than the cap
        cap = share * sum(largest[capped:]) / (1 - capped * share)
        if n <= cap or math.isclose(n, cap):
            break
    whole = max(1, math.floor(cap * (1 + 1e-12)))  # the cap may be a whole number but for rounding
    return [n if n <= cap or math.isclose(n, cap) else whole for n in rows]


class Spread(NamedTuple):
    """The median distance of replies, and the median of their rows."""

    distance: float
    rows: float

    @classmethod
    def of(cls, replies: Collection[tuple[float, int]]) -> "Spread":
        """The lower medians: of an even number, the larger half may be wrong."""
        distances, rows = zip(*replies, strict=True)
        return cls(statistics.median_low(distances), statistics.median_low(rows))

    def bound(self, rows: int, median_bound: float) -> float:
        """The largest plausible distance of a site with so many rows.

        A site with more rows takes more steps per round, and so goes farther.
        """
        return median_bound * self.distance * max(1.0, rows / self.rows)


class SiteCounts(NamedTuple):
    """A site's evaluation of a model on its own test images."""

    loss: float  # summed over the images
    correct: list[int]  # per class
    rows: list[int]  # per class


def check_counts(table: Mapping[str, Any], classes: int) -> SiteCounts:
    """The site's evaluation, or a Fault that says what is wrong with it."""
    try:
        counts = SiteCounts(float(table["loss"]), list(table["correct"]), list(table["rows"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Fault(f"its evaluation is incomplete: {shown(error)}") from error
    whole = all(type(n) is int and 0 <= n <= MAX_ROWS for n in counts.correct + counts.rows)
    if not whole or not len(counts.correct) == len(counts.rows) == classes:
        raise Fault(f"its evaluation does not count {classes} classes")
    if any(c > n for c, n in zip(counts.correct, counts.rows, strict=True)):
        raise Fault("it claims more correct predictions than test images")
    if not sum(counts.rows):
        raise Fault("it has no test images")
    if not math.isfinite(counts.loss) or counts.loss < 0:
        raise Fault("the loss on its test images is negative or not finite")
    return counts
