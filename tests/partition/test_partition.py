"""Partitions: how rows are distributed among clients, and what is refused."""

import hashlib
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedadb import datasets
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.partition import Labels, Partition
from fedadb.partition.dirichlet import Dirichlet
from fedadb.partition.domains import ByDomain
from fedadb.partition.file import File
from fedadb.partition.iid import Iid
from fedadb.partition.reference import ReferenceDirichlet
from fedadb.partition.shards import Shards


def labels_of(per_class: list[int], seed: int = 0) -> NDArray[np.int64]:
    labels = np.repeat(np.arange(len(per_class)), per_class)
    return np.random.default_rng(seed).permutation(labels)


def rows_of(
    partition: Partition, labels: NDArray[np.int64], clients: int, seed: int = 0
) -> list[NDArray[np.int64]]:
    return partition.rows(Labels(labels), clients, np.random.default_rng(seed))


@settings(max_examples=40, deadline=None)
@given(
    per_class=st.lists(st.integers(0, 300), min_size=2, max_size=8),
    clients=st.integers(1, 12),
    alpha=st.sampled_from([0.1, 0.5, 5.0]),
    seed=st.integers(0, 5),
)
def test_every_row_belongs_to_exactly_one_client(
    per_class: list[int], clients: int, alpha: float, seed: int
) -> None:
    labels = labels_of(per_class)
    for partition in (Dirichlet(alpha, min_rows=1), Iid()):
        if len(labels) < 30 * clients:
            continue
        parts = rows_of(partition, labels, clients, seed)
        assert len(parts) == clients
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_dirichlet_respects_its_bounds_at_the_papers_setting() -> None:
    labels = labels_of([5000] * 10)
    parts = rows_of(Dirichlet(0.1), labels, 100)
    sizes = [len(p) for p in parts]
    assert min(sizes) >= 10
    assert max(sizes) <= 500 + 5000
    counts = np.array([np.bincount(labels[p], minlength=10) for p in parts])
    assert counts.sum(0).tolist() == [5000] * 10
    # In this setting, clients have about 4 of the 10 classes and a median of about 444 rows.
    assert 3.4 < (counts > 0).sum(1).mean() < 5.0
    assert 330 < np.median(sizes) < 540


def test_a_client_with_its_fair_share_receives_no_more() -> None:
    labels = labels_of([1000, 1000, 1000, 1000])
    for seed, alpha in itertools.product(range(10), (0.5, 0.001)):
        counts = np.array([
            np.bincount(labels[p], minlength=4)
            for p in rows_of(Dirichlet(alpha, min_rows=1), labels, 4, seed)
        ])  # fmt: skip
        before = np.cumsum(counts, 1)[:, :-1]
        after = counts[:, 1:]
        # The last client may receive a rounding remainder.
        assert (after[:-1][before[:-1] >= 1000] == 0).all()


def test_the_limit_on_sizes_can_be_raised_or_dropped() -> None:
    labels = labels_of([400] * 10)
    largest = []
    for limit in (1.0, 2.0, None):
        counts = Dirichlet(0.1, min_rows=1, limit=limit)._draw_many(
            200, np.bincount(labels), 20, np.random.default_rng(0)
        )
        before, received = counts.cumsum(1)[:, :-1], counts[:, 1:] > 0
        if limit is not None:
            full = (before >= limit * 200)[..., :-1]  # the last client has what rounding leaves
            assert full.any()
            assert not (received[..., :-1] & full).any()
        largest.append(counts.sum(1).max(1).mean())
    assert largest[0] < largest[1] < largest[2]


def test_a_limit_below_the_fair_share_is_refused() -> None:
    with pytest.raises(BadInput, match=r"federation\.partition\.limit"):
        Experiment.read({"federation": {"partition": {"name": "dirichlet", "limit": 0.5}}})


def test_equal_seeds_give_equal_partitions() -> None:
    labels = labels_of([400] * 5)
    first, second, other = (rows_of(Dirichlet(0.2), labels, 10, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_huge_alpha_mixes_early_classes_evenly() -> None:
    labels = labels_of([1000] * 10)
    parts = rows_of(Dirichlet(1e6), labels, 10)
    counts = np.array([np.bincount(labels[p], minlength=10) for p in parts])
    assert (abs(counts[:, :5] - 100) <= 3).all()


def test_a_single_client_has_all_rows() -> None:
    assert len(rows_of(Dirichlet(0.1), labels_of([20, 30]), 1)[0]) == 50


def test_strong_skew_is_drawn_within_the_limit() -> None:
    """CIFAR-10 at K = 100, α = 0.05: tens of thousands of draws, which take seconds."""
    parts = rows_of(Dirichlet(0.05), labels_of([5000] * 10), 100)
    assert min(len(p) for p in parts) >= 10


def test_thousands_of_clients_are_possible() -> None:
    labels = labels_of([6000] * 10)
    assert len(rows_of(Iid(), labels, 10_000)) == 10_000
    assert len(rows_of(Dirichlet(1.0, min_rows=1), labels, 2_000)) == 2_000


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(BadInput, match="need 1000 rows, and there are 50"):
        rows_of(Dirichlet(0.1), labels_of([20, 30]), 100)
    with pytest.raises(BadInput, match="100 clients but only 50 rows"):
        rows_of(Iid(), labels_of([20, 30]), 100)


def test_the_error_after_too_many_draws_says_what_to_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedadb.partition.dirichlet.MAX_DRAWS", 500)
    with pytest.raises(BadInput, match=r"raise federation\.partition\.alpha, lower"):
        rows_of(Dirichlet(0.001), labels_of([600, 600]), 100)


def test_the_smallest_alpha_gives_a_class_to_one_client() -> None:
    labels = labels_of([50] * 8)
    parts = rows_of(Dirichlet(1e-300, min_rows=1), labels, 3)
    holders = [sum(c in labels[p] for p in parts) for c in range(8)]
    assert holders == [1] * 8


# reference


def test_the_reference_draws_what_the_reference_code_draws() -> None:
    """Its first draw leaves a client with 23 rows, so that more rows take further draws."""
    labels = labels_of([30] * 4)
    once = rows_of(ReferenceDirichlet(0.3), labels, 4, seed=1)
    assert [len(part) for part in once] == [24, 42, 31, 23]
    assert [part[:4].tolist() for part in once] == [
        [67, 89, 19, 38], [14, 76, 37, 23], [72, 118, 113, 103], [70, 36, 4, 79],
    ]  # fmt: skip
    twice = rows_of(ReferenceDirichlet(0.3, min_rows=24), labels, 4, seed=2)
    assert [len(part) for part in twice] == [26, 27, 39, 28]
    assert [part[:4].tolist() for part in twice] == [
        [49, 64, 27, 5],
        [114, 111, 55, 112],
        [37, 2, 92, 52],
        [22, 50, 102, 97],
    ]


def test_the_reference_is_the_same_for_all_seeds() -> None:
    first, second = (rows_of(ReferenceDirichlet(), labels_of([90] * 4), 3, seed) for seed in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("alpha", [1e-6, 1e-300])
def test_the_reference_refuses_what_it_cannot_draw(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedadb.partition.reference.MAX_DRAWS", 50)
    with pytest.raises(BadInput, match=r"none of 50 draws .* raise federation\.partition\.alpha"):
        rows_of(ReferenceDirichlet(alpha), labels_of([60, 60]), 10)


@pytest.mark.data
def test_the_reference_partition_of_organamnist() -> None:
    y = datasets.load("organamnist").train.y.numpy().astype(np.int64)
    parts = [part.tolist() for part in rows_of(ReferenceDirichlet(0.1), y, 100)]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    assert digest == "c138250cfe4280f5fb27f4398d424e59f8463feb4c3f6add9077bf264cb69f1d"


# shards


@settings(max_examples=60, deadline=None)
@given(
    per_class=st.lists(st.integers(40, 300), min_size=2, max_size=8),
    clients=st.integers(4, 12),
    classes=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_shards_give_every_client_the_same_number_of_classes(
    per_class: list[int], clients: int, classes: int, seed: int
) -> None:
    if not classes <= len(per_class) <= clients * classes:
        return
    labels = labels_of(per_class)
    parts = rows_of(Shards(classes), labels, clients, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(len(set(labels[p].tolist())) == classes for p in parts)


def test_shards_of_equal_classes_are_equal_and_combined_at_random() -> None:
    labels = labels_of([500] * 10)
    parts = rows_of(Shards(2), labels, 100)
    assert {len(p) for p in parts} == {50}
    pairs = {tuple(sorted(set(labels[p].tolist()))) for p in parts}
    assert len(pairs) > 25  # of 45


def test_a_larger_class_has_more_shards() -> None:
    labels = labels_of([900, 90, 10])
    parts = rows_of(Shards(1), labels, 10)
    holders = [sum(c in labels[p] for p in parts) for c in range(3)]
    assert holders == [8, 1, 1]


@pytest.mark.parametrize(
    ("classes", "per_class", "clients", "message"),
    [
        (4, [9, 9, 9], 5, "classes = 4: the data have only 3 classes"),
        (1, [9] * 5, 4, "4 clients with 1 classes each cannot cover all 5 classes"),
        (2, [2, 2, 2], 20, "6 rows are too few for 20 clients"),
    ],
)
def test_impossible_shards_are_refused(
    classes: int, per_class: list[int], clients: int, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        rows_of(Shards(classes), labels_of(per_class), clients)


# domains


def pacs_like() -> Labels:
    """Four domains of seven classes, 20 to 47 rows each."""
    sizes = 20 + np.arange(28)
    strata = np.repeat(np.arange(28), sizes)
    return Labels(strata % 7, strata // 7)


@pytest.mark.parametrize(("clients", "classes"), [(20, 4), (4, 7), (8, 4)])
def test_clients_have_one_domain_and_each_domain_has_all_classes(
    clients: int, classes: int
) -> None:
    labels = pacs_like()
    assert labels.domain is not None
    for seed in range(5):
        parts = ByDomain(classes).rows(labels, clients, np.random.default_rng(seed))
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels.y)))
        for k, part in enumerate(parts):
            assert set(labels.domain[part].tolist()) == {k // (clients // 4)}
            assert len(set(labels.y[part].tolist())) == classes
        for d, c in itertools.product(range(4), range(7)):
            sizes = [np.sum((labels.y[p] == c) & (labels.domain[p] == d)) for p in parts]
            shares = [int(n) for n in sizes if n]
            assert max(shares) - min(shares) <= 1


def test_impossible_domains_are_refused() -> None:
    for labels, clients, classes, message in (
        (Labels(np.zeros(9, np.int64)), 4, 4, "the dataset has no domains; use pacs"),
        (pacs_like(), 6, 4, "federation.clients = 6: must be a multiple of the 4 domains"),
        (pacs_like(), 4, 4, "1 clients per domain with 4 classes each do not cover all 7 classes"),
        (pacs_like(), 20, 9, "federation.partition.classes = 9: a domain has only 7 classes"),
    ):
        with pytest.raises(BadInput, match=message):
            ByDomain(classes).rows(labels, clients, np.random.default_rng(0))


# from a file


def test_a_file_lists_the_rows_of_each_client(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"north": [4, 0, 7], "south": [1, 2]}')
    (tmp_path / "p.csv").write_text(
        "\ufeffrow,client\n4,north\n1,south\n0,north\n7,north\n2,south\n"
    )
    (tmp_path / "q.CSV").write_text("client;row\nnorth; 4\nsouth;1\nnorth;0\nnorth;7\nsouth;2\n")
    for name in ("p.json", "p.csv", "q.CSV"):
        parts = rows_of(File(str(tmp_path / name)), labels_of([5, 5]), 2)
        assert [p.tolist() for p in parts] == [[4, 0, 7], [1, 2]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "p.json",
            '{"a": [1, 2], "b": [3, 2]}',
            "row 2 occurs twice, for client 'a' and for client 'b'",
        ),
        (
            "p.json",
            '{"a": [1, 1], "b": [3]}',
            "row 1 occurs twice, for client 'a' and for client 'a'",
        ),
        ("p.json", '{"a": [1], "b": [10]}', "client 'b' has row 10; the training rows are 0 to 9"),
        ("p.json", '{"a": [1], "b": [-1]}', "client 'b' has row -1"),
        ("p.json", '{"a": [1], "b": []}', "client 'b' has no rows"),
        ("p.json", '{"a": [1]}', "has 1 clients, but federation.clients is 2; set it to 1"),
        ("p.json", '{"a": [1.5], "b": [2]}', "client 'a' must be a list of whole numbers"),
        ("p.json", '{"a": [true], "b": [2]}', "client 'a' must be a list of whole numbers"),
        ("p.json", "[[1], [2]]", 'it must be {"client": '),
        ("p.json", "{", "is not a partition: "),
        ("p.json", '{"a": [1], "a": [2]}', "client 'a' occurs twice"),
        ("p.csv", "row,who\n1,a\n", "line 2 must have a whole number in column row and a name"),
        ("p.csv", "row,client\n1,a\nx,b\n", "line 3 must have a whole number"),
        ("p.csv", "row,client\n1,a\n4\n", "line 3 must have a whole number"),
        ("p.csv", "", "has no clients"),
        ("p.json", "[" * 100_000, "is not a partition"),
    ],
)
def test_a_wrong_file_is_an_error(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=re.escape(message)):
        rows_of(File(str(tmp_path / name)), labels_of([5, 5]), 2)


def test_the_path_of_a_file_is_absolute_and_named_if_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.json cannot be read"):
        rows_of(File(str(tmp_path / "none.json")), labels_of([5, 5]), 2)
    given = {"federation": {"partition": {"name": "file", "path": "who.json"}}}
    read = Experiment.read(given).federation.partition
    assert read == File(str(Path.cwd() / "who.json"))
    with pytest.raises(BadInput, match=r"federation\.partition\.path is missing"):
        Experiment.read({"federation": {"partition": "file"}})
