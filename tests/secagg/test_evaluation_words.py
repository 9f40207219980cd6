"""Evaluations as words: counts are exact."""

import math

import numpy as np
import pytest

from fedadb.core.errors import Fault
from fedadb.secagg.evaluation_words import (
    evaluation_word_count,
    evaluation_words,
    pooled_counts,
)
from fedadb.secagg.fixed_point import Words
from fedadb.secagg.reply_words import NoSum


def total_of(*losses: float) -> Words:
    sites = [([3, 0], [4, 0]), ([0, 0], [0, 0]), ([1, 7], [5, 9])]
    words = [evaluation_words(c, n, x, 3) for (c, n), x in zip(sites, losses, strict=True)]
    assert all(len(one) == evaluation_word_count(2) for one in words)
    return sum(words, start=np.zeros(7, dtype=np.uint32))


def test_counts_are_added() -> None:
    assert pooled_counts(total_of(8.5, 0.0, 20.25), 2, 3) == ([4, 7], [9, 9], 28.75)


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e30])
def test_a_loss_that_cannot_be_encoded_leaves_none(loss: float) -> None:
    correct, rows, total = pooled_counts(total_of(8.5, loss, 20.25), 2, 3)
    assert (correct, rows) == ([4, 7], [9, 9])
    assert math.isnan(total)


def test_garbage_is_detected() -> None:
    for position in (-1, 0):
        garbage = total_of(1.0, 1.0, 1.0)
        garbage[position] += 100
        with pytest.raises(NoSum):
            pooled_counts(garbage, 2, 3)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(Fault, match="test rows are too many"):
        evaluation_words([1], [2**31 // 3 + 1], 0.0, 3)
