import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedadb.core.errors import BadInput
from fedadb.partition import Partition
from fedadb.partition.dirichlet import Dirichlet
from fedadb.partition.iid import Iid


def labels_of(per_class: list[int], seed: int = 0) -> NDArray[np.int64]:
    labels = np.repeat(np.arange(len(per_class)), per_class)
    return np.random.default_rng(seed).permutation(labels)


def rows_of(
    partition: Partition, labels: NDArray[np.int64], clients: int, seed: int = 0
) -> list[NDArray[np.int64]]:
    return partition.rows(labels, clients, np.random.default_rng(seed))


@settings(max_examples=40, deadline=None)
@given(
    per_class=st.lists(st.integers(0, 300), min_size=2, max_size=8),
    clients=st.integers(1, 12),
    alpha=st.sampled_from([0.1, 0.5, 5.0]),
    seed=st.integers(0, 5),
)
def test_every_row_goes_to_exactly_one_client(
    per_class: list[int], clients: int, alpha: float, seed: int
) -> None:
    labels = labels_of(per_class)
    for partition in (Dirichlet(alpha, min_rows=1), Iid()):
        if len(labels) < 30 * clients:
            continue
        parts = rows_of(partition, labels, clients, seed)
        assert len(parts) == clients
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_the_lineage_holds_its_bounds() -> None:
    labels = labels_of([5000] * 10)
    parts = rows_of(Dirichlet(0.1), labels, 100)
    sizes = [len(p) for p in parts]
    assert min(sizes) >= 10
    assert max(sizes) <= 500 + 5000
    held = np.array([np.bincount(labels[p], minlength=10) for p in parts])
    assert held.sum(0).tolist() == [5000] * 10
    # PROTOCOL-level facts of this setting: about 4 of 10 classes, a median near 444.
    assert 3.4 < (held > 0).sum(1).mean() < 5.0
    assert 330 < np.median(sizes) < 540


def test_a_client_with_its_fair_share_receives_no_more() -> None:
    labels = labels_of([1000, 1000, 1000, 1000])
    for seed, alpha in itertools.product(range(10), (0.5, 0.001)):
        held = np.array([
            np.bincount(labels[p], minlength=4)
            for p in rows_of(Dirichlet(alpha, min_rows=1), labels, 4, seed)
        ])  # fmt: skip
        before = np.cumsum(held, 1)[:, :-1]
        after = held[:, 1:]
        # The last client may receive what rounding left over.
        assert (after[:-1][before[:-1] >= 1000] == 0).all()


def test_the_same_seed_gives_the_same_split() -> None:
    labels = labels_of([400] * 5)
    first, second, other = (rows_of(Dirichlet(0.2), labels, 10, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_huge_alpha_mixes_early_classes_evenly() -> None:
    labels = labels_of([1000] * 10)
    parts = rows_of(Dirichlet(1e6), labels, 10)
    held = np.array([np.bincount(labels[p], minlength=10) for p in parts])
    assert (abs(held[:, :5] - 100) <= 3).all()


def test_one_client_holds_everything() -> None:
    assert len(rows_of(Dirichlet(0.1), labels_of([20, 30]), 1)[0]) == 50


def test_strong_skew_is_found_within_the_attempts() -> None:
    """CIFAR-10 at K = 100, α = 0.05: tens of thousands of attempts, seconds here."""
    parts = rows_of(Dirichlet(0.05), labels_of([5000] * 10), 100)
    assert min(len(p) for p in parts) >= 10


def test_ten_thousand_clients_are_dealt_out_quickly() -> None:
    labels = labels_of([6000] * 10)
    assert len(rows_of(Iid(), labels, 10_000)) == 10_000
    assert len(rows_of(Dirichlet(1.0, min_rows=1), labels, 2_000)) == 2_000


def test_impossible_splits_are_refused() -> None:
    with pytest.raises(BadInput, match="need 1000 rows, and there are 50"):
        rows_of(Dirichlet(0.1), labels_of([20, 30]), 100)
    with pytest.raises(BadInput, match="100 clients but only 50 rows"):
        rows_of(Iid(), labels_of([20, 30]), 100)


def test_giving_up_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedadb.partition.dirichlet.ATTEMPTS", 500)
    with pytest.raises(BadInput, match=r"raise federation\.partition\.alpha, lower"):
        rows_of(Dirichlet(0.001), labels_of([600, 600]), 100)
