"""Numbers as words modulo 2³²: their sums are exact, and do not depend on an order.

A number x is the word rint(x · 2^scale) in two's complement. The scale is chosen so that the sum of
all clients' numbers does not wrap.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedadb.core.errors import BadInput

Words: TypeAlias = NDArray[np.uint32]
Numbers: TypeAlias = NDArray[np.float64]

BITS = 32
WORD_BYTES = BITS // 8
LARGEST = 2 ** (BITS - 1) - 1
LEAST_SCALE = 8


class Coding(NamedTuple):
    """How the clients of a round encode their updates.

    The sum of n_k Δ_k divided by the sum of n_k is the mean, so no client states its own n_k. If
    all count alike, each n_k is 1.
    """

    clients: int  # m
    rows: int  # N: of all clients
    largest: float  # R: the largest change of a weight that can be encoded
    uniform: bool = False  # whether all clients count alike

    @property
    def total(self) -> int:
        """The sum of all n_k."""
        return self.clients if self.uniform else self.rows

    @property
    def scale(self) -> int:
        """⌊log₂((2³¹ − 1 − m) / (Σ n_k · R))⌋: each client may round up by half a word."""
        _, exponent = math.frexp((LARGEST - self.clients) / (self.total * self.largest))
        scale = exponent - 1
        if scale < LEAST_SCALE:
            most = int((LARGEST - self.clients) / 2**LEAST_SCALE / self.largest)
            sites = f"are {self.clients}" if self.uniform else f"have {self.rows} rows"
            raise BadInput(
                f"deployment.secure_range = {self.largest:g}: the sites {sites}, and "
                f"secure aggregation encodes at most {most} at this range; lower it"
            )
        return scale

    def weight(self, rows: int) -> int:
        """n_k of a client with so many rows."""
        return 1 if self.uniform else rows


def to_words(numbers: Numbers, scale: int) -> Words:
    """The numbers as words; of two nearest ones, the even word."""
    return np.rint(numbers * 2.0**scale).astype(np.int64).astype(np.uint32)


def to_numbers(words: Words, scale: int) -> Numbers:
    """The numbers of words, or of sums of words."""
    return words.view(np.int32) / 2.0**scale
