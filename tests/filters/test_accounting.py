"""ε against published numbers of dp-accounting 0.6.0, and how it moves."""

import itertools
import math
import sys

import pytest

from fedadb.core.errors import BadInput
from fedadb.filters import accounting
from fedadb.filters.accounting import Accountant, default_delta

# clients, participation, releases, noise, δ; ε of Poisson sampling, of a fixed number of clients,
# and of everyone
TABLE = [
    (100, 0.05, 300, 1.0, 1e-3, 3.9585, 77.93, 202.60),
    (100, 0.05, 300, 1.0, 1e-5, 5.7954, 82.54, 222.98),
    (100, 0.05, 300, 2.0, 1e-3, 1.2741, 9.2158, None),
    (10_000, 0.01, 1000, 0.8, 1e-5, 3.1414, 108.71, 948.89),
    (10_000, 0.01, 1000, 1.6, 1e-5, 0.8387, 5.3566, None),
    (20, 0.2, 100, 1.0, 1e-2, 8.2044, 171.26, 72.37),
    (20, 0.2, 100, 2.0, 1e-2, 2.5678, 22.90, 23.32),
]
EXACT = pytest.approx


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_epsilon_is_that_of_the_published_table(row: tuple[float, ...]) -> None:
    clients, q, releases, noise, delta, poisson, fixed, everyone = row
    k, t = int(clients), int(releases)
    assert Accountant(k, q, poisson=True).epsilon(noise, t, delta) == EXACT(poisson, rel=1e-3)
    assert Accountant(k, q, poisson=False).epsilon(noise, t, delta) == EXACT(fixed, rel=1e-3)
    if everyone is not None:
        for sampled in (True, False):
            all_of_them = Accountant(k, 1.0, sampled)
            assert all_of_them.epsilon(noise, t, delta) == EXACT(everyone, rel=1e-3)


@pytest.mark.parametrize(("noise", "epsilon"), [(1.0, 19.60), (4.0, 2.69), (10.0, 0.79)])
def test_three_sites_that_always_take_part(noise: float, epsilon: float) -> None:
    found = Accountant(3, 1.0, poisson=False).epsilon(noise, 20, 1e-2)
    assert found == EXACT(epsilon, rel=3e-3)  # the table has two decimals


@pytest.mark.parametrize(
    ("accountant", "epsilon", "releases", "delta", "noise"),
    [
        (Accountant(100, 0.05, True), 8.0, 300, 1e-3, 0.7297),
        (Accountant(3, 1.0, False), 8.0, 20, 1e-2, 1.8264),
    ],
)
def test_the_noise_that_an_epsilon_needs(
    accountant: Accountant, epsilon: float, releases: int, delta: float, noise: float
) -> None:
    found = accountant.noise_for(epsilon, releases, delta)
    assert found == EXACT(noise, rel=1e-3)
    assert accountant.epsilon(found, releases, delta) <= epsilon


@pytest.mark.parametrize(
    ("accountant", "epsilon", "releases", "delta", "noise"),
    [
        (Accountant(10_000, 0.01, True), 2.0, 1000, 1e-5, 0.9592),
        (Accountant(20, 0.2, True), 8.0, 100, 1e-2, 1.0135),
    ],
)
def test_the_epsilon_of_published_noise(
    accountant: Accountant, epsilon: float, releases: int, delta: float, noise: float
) -> None:
    """They were found for these ε; the search takes seconds."""
    assert accountant.epsilon(noise, releases, delta) == EXACT(epsilon, rel=1e-3)


def test_epsilon_rises_with_releases_and_clients_in_a_round_and_falls_with_noise() -> None:
    def rises(*values: float) -> bool:
        return all(a < b for a, b in itertools.pairwise(values))

    for poisson in (True, False):
        few, many = Accountant(100, 0.05, poisson), Accountant(100, 0.1, poisson)
        assert rises(*(few.epsilon(1.0, t, 1e-3) for t in range(1, 12)))
        assert rises(*(few.epsilon(z, 20, 1e-3) for z in (2.0, 1.5, 1.0, 0.7)))
        assert rises(*(one.epsilon(1.0, 20, 1e-3) for one in (few, many)))


def test_a_fixed_number_of_clients_is_another_promise_than_poisson_sampling() -> None:
    """If someone steps in for a client, the sum moves by 2S, which is often forgotten."""
    poisson, fixed = (Accountant(100, 0.05, sampled) for sampled in (True, False))
    assert poisson.relation == "one client added or removed"
    assert fixed.relation == "one client replaced by another"
    assert Accountant(3, 1.0, poisson=False).relation == "one client added or removed"
    assert fixed.epsilon(1.0, 300, 1e-3) > 10 * poisson.epsilon(1.0, 300, 1e-3)


def test_delta_is_below_one_in_the_number_of_clients() -> None:
    assert default_delta(20) == EXACT(0.037, abs=5e-4)
    assert default_delta(1000) == EXACT(1000**-1.1)


@pytest.mark.parametrize("accountant", [Accountant(50, 0.2, True), Accountant(50, 1.0, False)])
def test_epsilon_is_finite_for_all_settings_that_are_allowed(accountant: Accountant) -> None:
    """An infinite one could not be recorded, and the search for its noise would not end."""
    for noise in (0.1, 1000.0):
        assert 0 <= accountant.epsilon(noise, 100, 1e-12) < math.inf
    assert accountant.epsilon(accountant.noise_for(0.01, 100, 1e-12), 100, 1e-12) <= 0.01


def test_little_noise_is_counted_by_larger_steps_and_never_too_low() -> None:
    """ε = 1609.940 in the small steps of much noise, which take 3 s."""
    found = Accountant(50, 0.2, True).epsilon(0.1, 100, 1e-3)
    assert 1609.939 < found < 1610


def test_without_the_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(BadInput, match=r"pip install 'fedadb\[privacy\]'"):
        accounting._accounting()
