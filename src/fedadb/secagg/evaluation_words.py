"""Evaluations at sites as words: per class the correct predictions and the test rows; the loss.

The last word is 1 at each site, so that the sum has the number of sites.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedadb.core.errors import Fault
from fedadb.secagg.fixed_point import LARGEST, Words
from fedadb.secagg.reply_words import NoSum, optional_means, optional_words

LOSS_SCALE = 8  # the loss of all test rows together is rounded to 1/256 per site


class PooledCounts(NamedTuple):
    """The evaluation of a model on the test rows of all sites together."""

    correct: list[int]  # per class
    rows: list[int]  # per class
    loss: float  # summed over the rows; nan if a site's is not finite


def evaluation_word_count(classes: int) -> int:
    return 2 * classes + 3


def evaluation_words(correct: Sequence[int], rows: Sequence[int], loss: float, sites: int) -> Words:
    """The words of one of so many sites; of one without test rows, all counts are 0."""
    if sum(rows) > LARGEST // sites:
        raise Fault(f"{sum(rows)} test rows are too many for secure aggregation")
    counts = np.array([*correct, *rows], dtype=np.uint32)
    one = np.ones(1, dtype=np.uint32)
    return np.concatenate([counts, optional_words([loss], LOSS_SCALE, sites), one])


def pooled_counts(total: Words, classes: int, sites: int) -> PooledCounts:
    """The evaluation whose words have this sum; NoSum if it cannot be one."""
    if total[-1] != sites:
        raise NoSum(f"{total[-1]} sites have evaluated, and not {sites}")
    correct, rows = total[:classes].tolist(), total[classes : 2 * classes].tolist()
    if any(c > n for c, n in zip(correct, rows, strict=True)) or sum(rows) > LARGEST:
        raise NoSum("the numbers of test rows and of correct predictions are impossible")
    (mean,) = optional_means(total[2 * classes : -1], LOSS_SCALE, sites)
    complete = int(total[-2]) == sites
    return PooledCounts(correct, rows, mean * sites if complete else math.nan)
