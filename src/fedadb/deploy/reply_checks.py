"""Checks on what sites send back, before the server uses it."""

import math
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.core.errors import Fault
from fedadb.core.filter import Filter, restore, update_norm
from fedadb.core.packing import kind_of, pack, unpack
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector
from fedadb.deploy.messages import shown

MEASUREMENT = re.compile(r"measured/[a-z_]{1,40}")
NUMBERS = (torch.float32, torch.float64, torch.int64, torch.int32)


MAX_ROWS = 10**12  # of a site
MAX_MEASUREMENT = 1e38  # the mean of several stays finite
IMPLIED_TOLERANCE = 1e-5  # relative: sites state numbers in float32


class CheckedReply(NamedTuple):
    """A valid reply, and the norms of its parts."""

    reply: Reply[Any]  # as the site sent it; perhaps compressed
    norms: Mapping[str, float]  # of w_k − w, under the name "w", and of each other part


def check_reply(
    tensors: Mapping[str, Tensor],
    w: Vector,
    rows: int,
    example: Reply[Any],
    measures: Collection[str] = (),
    implied: Mapping[str, float] = MappingProxyType({}),
    filters: Sequence[Filter] = (),
) -> CheckedReply:
    """The reply in the tensors, or a Fault that says what is wrong with it.

    Args:
        tensors: What the site sent.
        w: The weights that the site received.
        rows: The site's number of rows.
        example: A reply with the types and shapes of a valid one.
        measures: The measurements that the algorithm declares; others are ignored.
        implied: The numbers of an upload that follow from the number of rows.
        filters: Those through which the site sent it.
    """
    expected = pack(example)
    for name, tensor in tensors.items():  # types first: nothing is computed with wrong ones
        if name not in expected:
            if not MEASUREMENT.fullmatch(name) or tensor.ndim or tensor.dtype not in NUMBERS:
                raise Fault(f"{name[:60]!r} is not part of a reply")
        elif (tensor.dtype, tensor.shape) != (expected[name].dtype, expected[name].shape):
            raise Fault(
                f"{name[:60]} is {tensor.dtype} of shape {tuple(tensor.shape)}; expected is "
                f"{expected[name].dtype} of shape {tuple(expected[name].shape)}"
            )
        elif not tensor.isfinite().all():
            raise Fault(f"{name[:60]} is not finite")
    device = w.flat.device
    on_device = {name: tensor.to(device) for name, tensor in tensors.items()}
    reply: Reply[Any] = unpack(kind_of(example), on_device, w.layout)
    if int(reply.examples) != rows:
        raise Fault(f"it claims {int(reply.examples)} rows, but has {rows}")
    upload = restore(filters, reply, w).upload
    if upload is not reply.upload and not upload.w.flat.isfinite().all():
        raise Fault("its weights are not finite")
    for name, number in implied.items():
        stated = float(getattr(upload, name))
        if not math.isclose(stated, number, rel_tol=IMPLIED_TOLERANCE):
            raise Fault(f"its {name} is {stated:.6g}, but {rows} rows give {number:.6g}")
    others = {name: part for name, part in upload._asdict().items() if name != "w"}
    length = update_norm(reply._replace(upload=upload), w)
    norms = {"w": length} | {name: norm(part) for name, part in others.items()}
    measured = {
        name: value if abs(float(value)) <= MAX_MEASUREMENT else torch.tensor(math.nan)
        for name, value in sorted(reply.measured.items())
        if name in measures
    }
    return CheckedReply(reply._replace(measured=measured), norms)


def norm(tree: Any) -> float:
    """The Euclidean norm of all numbers of a tree."""
    return math.hypot(*(float(t.double().norm()) for t in pack(tree, "part").values()))


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
    """The median norm of a part of replies, and the median of their rows."""

    norm: float
    rows: float

    @classmethod
    def of(cls, replies: Collection[tuple[float, int]]) -> "Spread":
        """The lower medians: of an even number, the larger half may be wrong."""
        norms, rows = zip(*replies, strict=True)
        return cls(statistics.median_low(norms), statistics.median_low(rows))

    def bound(self, rows: int, median_bound: float) -> float:
        """The largest plausible norm of a site with so many rows.

        A site with more rows takes more steps per round, and so goes farther.
        """
        return median_bound * self.norm * max(1.0, rows / self.rows)


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
