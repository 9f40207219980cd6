"""Replies as words: the mean is exact but for rounding, and what cannot be encoded is refused."""

import math

import numpy as np
import pytest
import torch

from fedadb.core.errors import BadInput, Diverged, Fault
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector, Weights
from fedadb.secagg.fixed_point import LARGEST, Coding, to_numbers
from fedadb.secagg.reply_words import (
    NoSum,
    OutOfRange,
    mean_reply,
    reply_words,
    word_count,
)
from tests.secagg.clients import coding_of, exact_mean, make_replies, masked_sum


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("clients", [3, 10, 50])
def test_the_mean_is_within_the_bound(clients: int, uniform: bool) -> None:
    """M 2^−(s+1) / N, which is at most 2 m R / 2³² whatever N is."""
    u, replies = make_replies(clients)
    coding = coding_of(replies, uniform=uniform)
    total = masked_sum(u, replies, coding)
    mean = to_numbers(total[: u.flat.numel()], coding.scale) / coding.total
    error = float(np.abs(mean - exact_mean(u, replies, coding).numpy()).max())
    bound = clients * 2.0 ** -(coding.scale + 1) / coding.total
    assert 0 < error <= bound <= 2 * clients / 2**32
    decoded = mean_reply(total, u, coding, ())
    assert torch.equal(decoded.w.flat.double(), (u.flat.double() + torch.from_numpy(mean)).float())


@pytest.mark.parametrize(
    ("clients", "rows", "scale", "bound"),
    [(3, 10_093, 17, 1.13e-9), (10, 31_299, 16, 2.4e-9), (50, 134_346, 13, 2.3e-8)],
)
def test_the_published_scales_and_bounds(clients: int, rows: int, scale: int, bound: float) -> None:
    """With R = 1."""
    coding = Coding(clients, rows, 1.0)
    assert coding.scale == scale
    assert clients * 2.0 ** -(scale + 1) / rows == pytest.approx(bound, rel=0.02)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("rows", [1, 3, 341, 1000, 2_700_000])
def test_a_sum_at_the_end_of_the_range_does_not_wrap(rows: int, sign: int) -> None:
    u = Vector.of({"weight": torch.zeros(2, dtype=torch.float64)})
    w = Vector(torch.full((2,), sign * 1.0, dtype=torch.float64), u.layout)
    replies = [Reply(Weights(w), torch.tensor(rows))] * 3
    coding = coding_of(replies)
    assert mean_reply(masked_sum(u, replies, coding), u, coding, ()).w.flat.tolist() == [sign] * 2


def test_too_many_rows_are_refused() -> None:
    assert Coding(3, 2**23 - 1, 1.0).scale == 8
    with pytest.raises(BadInput, match=r"secure_range = 1: the sites have 8388608 rows"):
        _ = Coding(3, 2**23, 1.0).scale
    assert Coding(3, 2**23, 0.5).scale == 8
    assert Coding(3, 10**9, 1.0, uniform=True).scale == 29
    with pytest.raises(BadInput, match=r"the sites are 3, and secure .* at most 2 at this range"):
        _ = Coding(3, 100, 2.0**22 - 1, uniform=True).scale


def test_a_change_beyond_the_range_is_refused_by_name_and_value() -> None:
    u = Vector.of({"body": torch.zeros(3), "head": torch.zeros(2)})
    w = Vector(torch.tensor([0.5, -1.0, 0, 0, -1.25]), u.layout)
    coding = Coding(3, 100, 1.0)
    with pytest.raises(OutOfRange, match=r"head changed by -1\.25, .*secure_range = 1; raise it"):
        reply_words(Reply(Weights(w), torch.tensor(10)), u, coding, ())
    wider = coding._replace(largest=1.25)
    assert len(reply_words(Reply(Weights(w), torch.tensor(10)), u, wider, ())) == 6


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_a_divergence(value: float) -> None:
    u = Vector.of({"body": torch.zeros(3)})
    w = Vector(torch.tensor([0.0, value, 2.0]), u.layout)
    with pytest.raises(Diverged, match="no longer finite"):
        reply_words(Reply(Weights(w), torch.tensor(10)), u, Coding(3, 100, 1.0), ())


@pytest.mark.parametrize("rows", [0, 101])
def test_rows_that_cannot_be_are_refused(rows: int) -> None:
    u = Vector.of({"body": torch.zeros(3)})
    with pytest.raises(Fault, match="the rows of all are 100"):
        reply_words(Reply(Weights(u), torch.tensor(rows)), u, Coding(3, 100, 1.0), ())


def test_measurements_are_averaged_over_the_clients_that_have_them() -> None:
    u, replies = make_replies(3, numbers=2)
    given = [(0.25, math.nan), (0.5, -3.0), (0.75, 1e9)]
    replies = [
        reply._replace(measured={"gamma": torch.tensor(a), "confidence": torch.tensor(b)})
        for reply, (a, b) in zip(replies, given, strict=True)
    ]
    coding, measures = coding_of(replies), ("gamma", "confidence", "never")
    assert word_count(u, measures) == 2 + 1 + 6
    mean = mean_reply(masked_sum(u, replies, coding, measures), u, coding, measures)
    assert float(mean.measured["gamma"]) == 0.5
    assert float(mean.measured["confidence"]) == -3.0  # 1e9 is too large, and nan is none
    assert math.isnan(float(mean.measured["never"]))


def test_garbage_is_detected() -> None:
    u, replies = make_replies(3)
    coding = coding_of(replies)
    total = masked_sum(u, replies, coding)
    one_row_more = total.copy()
    one_row_more[-1] += 1
    with pytest.raises(NoSum, match="numbers of rows add up to"):
        mean_reply(one_row_more, u, coding, ())
    too_far = total.copy()
    too_far[7] = LARGEST
    with pytest.raises(NoSum, match="a weight changed by more than 1 in the mean"):
        mean_reply(too_far, u, coding, ())
