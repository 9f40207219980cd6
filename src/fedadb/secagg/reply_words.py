"""A client's reply as words, and the sum of all clients' words as their mean reply.

The words are n_k Δ_k, then n_k, and then two per measurement: its value, and whether the client
has it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fedadb.core.errors import BadInput, Diverged, Fault
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector, Weights
from fedadb.secagg.fixed_point import LARGEST, Coding, Numbers, Words, to_numbers, to_words

PIECE = 1 << 20  # weights that are in memory as float64 at a time
MEASURED_SCALE = 16


class OutOfRange(Fault):
    """A weight changed by more than can be encoded."""


class NoSum(Fault):
    """What the masked words add up to is no sum of valid replies."""


def word_count(u: Vector, measures: Sequence[str]) -> int:
    """The number of words of a reply."""
    return u.flat.numel() + 1 + 2 * len(measures)


def reply_words(reply: Reply[Any], u: Vector, coding: Coding, measures: Sequence[str]) -> Words:
    """The words of a reply by a client that received the weights u, if it can be one of all."""
    if not 1 <= (weight := coding.weight(int(reply.examples))) <= coding.total:
        raise Fault(f"it has {weight} rows, but the rows of all are {coding.total}")
    return words_of(reply, u, coding, measures)


def words_of(reply: Reply[Any], u: Vector, coding: Coding, measures: Sequence[str]) -> Words:
    """The words of a reply, whatever the coding says about the rows of all clients.

    A site uses this, because the server tells it the rows of all, and could learn a site's own from
    the numbers at which the site refuses. With too few, the sum wraps: it is still that of all.
    Nothing is clipped here, because that would bias the mean. A weight that changed too much raises
    OutOfRange.
    """
    if not isinstance(reply.upload, Weights):
        raise BadInput(
            f"deployment.secure_aggregation sums weights, but the upload is a "
            f"{type(reply.upload).__name__}; choose a method that uploads weights only"
        )
    weight, scale = coding.weight(int(reply.examples)), coding.scale
    words = np.empty(word_count(u, measures), dtype=np.uint32)
    for start, delta in _changes(reply.w, u):
        _require_in_range(delta, start, u, coding.largest)
        words[start : start + len(delta)] = to_words(weight * delta, scale)
    d = u.flat.numel()
    words[d] = weight
    measured = [float(reply.measured.get(name, math.nan)) for name in measures]
    words[d + 1 :] = optional_words(measured, MEASURED_SCALE, coding.clients)
    return words


def mean_reply(total: Words, u: Vector, coding: Coding, measures: Sequence[str]) -> Reply[Any]:
    """The mean of the replies whose words have this sum; NoSum if it cannot be one.

    It has the weights u + Σ n_k Δ_k / Σ n_k, and counts as one row.
    """
    d, scale, w = u.flat.numel(), coding.scale, torch.empty_like(u.flat, device="cpu")
    if (rows := int(total[d : d + 1].view(np.int32)[0])) != coding.total:
        raise NoSum(f"the numbers of rows add up to {rows}, and not to {coding.total}")
    # a mean of numbers in range, each of which may have been rounded
    most = coding.largest + coding.clients * 2.0 ** -(scale + 1) / coding.total
    base = u.flat.cpu().double().numpy()
    for i in range(0, d, PIECE):
        part = slice(i, min(i + PIECE, d))
        mean = to_numbers(total[part], scale) / coding.total
        if np.abs(mean).max() > most:
            raise NoSum(f"a weight changed by more than {coding.largest:g} in the mean")
        w[part] = torch.from_numpy(base[part] + mean).to(w.dtype)
    values = optional_means(total[d + 1 :], MEASURED_SCALE, coding.clients)
    measured = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in zip(measures, values, strict=True)
    }
    return Reply(Weights(Vector(w.to(u.flat.device), u.layout)), torch.tensor(1), measured)


def optional_words(values: Sequence[float], scale: int, clients: int) -> Words:
    """Two words per value: the value, and 1; or 0 and 0, if it is not finite or too large."""
    limit = (LARGEST - clients) / clients / 2.0**scale
    has = np.array([abs(value) <= limit for value in values], dtype=np.uint32)  # nan is not
    known = np.array([v if h else 0.0 for v, h in zip(values, has, strict=True)])
    return np.stack([to_words(known, scale), has], axis=1).reshape(-1)


def optional_means(total: Words, scale: int, clients: int) -> list[float]:
    """The mean of each value over the clients that have it; nan if none has."""
    means = []
    for value, has in total.reshape(-1, 2):
        if has > clients:
            raise NoSum(f"{has} of {clients} have a measurement")
        number = float(to_numbers(np.array([value]), scale)[0])
        means.append(number / int(has) if has else math.nan)
    return means


def _changes(w: Vector, u: Vector) -> Iterator[tuple[int, Numbers]]:
    """Δ = w − u in float64, in pieces, each with its position."""
    for i in range(0, u.flat.numel(), PIECE):
        part = slice(i, i + PIECE)
        yield i, (w.flat[part].double() - u.flat[part].double()).cpu().numpy()


def _require_in_range(delta: Numbers, start: int, u: Vector, largest: float) -> None:
    sizes = np.abs(delta)
    i = int(sizes.argmax())  # the first nan, if there is one
    if sizes[i] <= largest:
        return
    if not math.isfinite(sizes[i]):
        raise Diverged(
            "its weights are no longer finite; a lower local.lr or milder settings of the "
            "algorithm may help"
        )
    raise OutOfRange(
        f"{_part_of(u, start + i)} changed by {delta[i]:.4g}, but secure aggregation encodes "
        f"changes up to deployment.secure_range = {largest:g}; raise it, lower local.lr, or add "
        "the filter clip"
    )


def _part_of(u: Vector, position: int) -> str:
    """The name of the tensor that has the number at that position."""
    for name, (offset, size, _) in u.layout.slots.items():
        if offset <= position < offset + size:
            return name
    raise IndexError(position)
