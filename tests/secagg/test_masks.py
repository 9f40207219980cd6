"""Masks hide words, cancel in the sum of all, and are never the same for two exchanges."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fedadb.secagg.fixed_point import Words
from fedadb.secagg.masks import CHUNK, EVALUATE, ROWS
from tests.secagg.clients import Clients

NAMES = ("a", "b", "é")


def small_words(n: int) -> Words:
    """Words of small numbers, whose bytes are far from uniform."""
    return np.random.default_rng(0).integers(0, 50, n).astype(np.uint32)


@pytest.fixture(scope="module")
def clients() -> Clients:
    return Clients(NAMES)


@pytest.mark.parametrize("n", [1, 5, CHUNK, CHUNK + 1])
def test_masks_cancel(clients: Clients, n: int) -> None:
    plain, exchange = small_words(n), clients.exchange(n)
    masked = [clients.masked(name, plain, exchange) for name in NAMES]
    assert all((words != plain).mean() > 0.99 for words in masked if n > 5)
    assert list(sum(masked, start=np.zeros(n, dtype=np.uint32))) == list(3 * plain)


@pytest.mark.parametrize("name", NAMES)
def test_masked_words_look_random(clients: Clients, name: str) -> None:
    """The test is deterministic but for the keys; it fails by chance once in 10⁹ times."""
    n = 100_000
    plain = small_words(n)
    masked = clients.masked(name, plain, clients.exchange(n))
    counts = np.bincount(masked.view(np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-9
    correlation = np.corrcoef(plain, masked.astype(np.float64))[0, 1]
    assert abs(correlation) < 6.2 / np.sqrt(n)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "fedcba9876543210"},
        {"t": 2},
        {"attempt": 1},
        {"sent": "00" * 31 + "01"},
        {"scale": 17},
        {"kind": EVALUATE},
        {"kind": ROWS},
    ],
)
def test_a_difference_in_anything_at_one_site_leaves_noise(
    clients: Clients, change: dict[str, Any]
) -> None:
    n = 64
    exchange, zeros = clients.exchange(n), np.zeros(n, dtype=np.uint32)
    masked = [clients.masked(name, zeros, exchange) for name in NAMES[:2]]
    masked.append(clients.masked("é", zeros, exchange._replace(**change)))
    assert (sum(masked, start=zeros) != 0).sum() > n - 3


def test_no_two_exchanges_and_no_two_runs_share_a_part_of_a_stream() -> None:
    """A block of 8 bytes that occurs twice would be chance once in 10¹² tests."""
    n = 2048
    zeros = np.zeros(n, dtype=np.uint32)
    one, other = Clients(NAMES), Clients(NAMES, run="fedcba9876543210")
    other.private = dict(one.private)  # even with the same keys
    streams = [
        of.masked("a", zeros, of.exchange(n, **change))
        for of in (one, other)
        for change in ({}, {"t": 2}, {"attempt": 1})
    ]
    blocks = np.concatenate(streams).view(np.uint64)
    assert len(np.unique(blocks)) == len(blocks)


def test_words_of_another_exchange_are_not_masked(clients: Clients) -> None:
    with pytest.raises(ValueError, match="not those of the exchange"):
        clients.masked("a", small_words(4), clients.exchange(5))
    with pytest.raises(ValueError, match="not those of the exchange"):
        clients.masked("a", small_words(5), clients.exchange(5, sites=("a", "b")))
