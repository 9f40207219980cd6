"""FedDisco's weights, with numbers worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddisco import FedDisco, FedDiscoUpload, discrepancy
from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.packing import size
from fedadb.core.replies import Reply, average
from fedadb.core.stream import Stream
from fedadb.core.vector import Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.local import Learner
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import close, vector
from tests.reference import naive
from tests.test_every_algorithm import Federation

ROUND = Round(1, 9, 20, 40)
COUNTS = [[50, 0, 0], [10, 10, 10], [5, 15, 0]]
ROWS, KL = [50, 30, 20], [1.098612, 0.0, 0.536277]


def reply(n: int, kl: float, *values: float) -> Reply[FedDiscoUpload]:
    return Reply(FedDiscoUpload(vector(*values), torch.tensor(kl)), torch.tensor(n))


def test_the_discrepancy_is_the_divergence_from_the_uniform_distribution() -> None:
    for counts, kl in zip(COUNTS, KL, strict=True):
        assert discrepancy(torch.tensor(counts)).item() == pytest.approx(kl, abs=1e-6)


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 10, 100])
def test_a_balanced_client_has_none_and_a_client_with_one_class_the_most(classes: int) -> None:
    """Exactly none: the sum of several would be a number of rounding errors to divide by."""
    for n in (1, 3, 11, 997):
        assert discrepancy(torch.full((classes,), n)) == 0
    one = torch.zeros(classes, dtype=torch.int64)
    one[-1] = 40
    assert discrepancy(one).item() == pytest.approx(math.log(classes), abs=1e-6)
    if classes > 1:
        one[0] = 39
        assert discrepancy(one) >= 0


def test_the_weights_by_hand() -> None:
    found = FedDisco().weights(ROWS, KL)
    assert found == pytest.approx([0.330013, 0.5, 0.169987], abs=1e-6)
    assert FedDisco(b=0).weights(ROWS, KL) == pytest.approx([0.328020, 0.6, 0.071980], abs=1e-6)


def test_the_mean_by_hand() -> None:
    n, kl = ROWS, KL
    replies = [
        reply(n[0], kl[0], 1, 0, 0),
        reply(n[1], kl[1], 0, 1, 0),
        reply(n[2], kl[2], 0, 0, 1),
    ]
    algorithm = FedDisco()
    after = algorithm.aggregate(algorithm.init(vector(9, 9, 9)), replies, ROUND)
    close(after.w.flat, 0.330013, 0.5, 0.169987)


def test_a_client_can_lose_all_its_weight() -> None:
    assert FedDisco(a=2.0).weights([50, 50], [1.0, 0.0]) == [0, 1]


def test_a_single_client_has_all_the_weight() -> None:
    for algorithm in (FedDisco(), FedDisco(a=3)):
        assert algorithm.weights([7], [0.4]) == [1]


def test_clients_count_by_their_rows_if_all_would_lose_their_weight() -> None:
    assert FedDisco(a=5, b=0).weights([10, 30], [1.0, 3.0]) == [0.25, 0.75]


def test_balanced_clients_are_pulled_towards_equal_weights() -> None:
    """(0.25 + 0.1) / 1.2 and (0.75 + 0.1) / 1.2; without b, they count by their rows."""
    found = FedDisco().weights([10, 30], [0.0, 0.0])
    assert found == pytest.approx([0.35 / 1.2, 0.85 / 1.2])
    assert FedDisco(b=0).weights([10, 30], [0.0, 0.0]) == [0.25, 0.75]


@pytest.mark.parametrize("claimed", [-1.0, -1e30, -1e-6])
def test_a_negative_discrepancy_counts_as_none(claimed: float) -> None:
    """A hostile site could otherwise take any weight."""
    honest = FedDisco().weights([10, 10, 10], [0.0, 1.0, 1.0])
    assert FedDisco().weights([10, 10, 10], [claimed, 1.0, 1.0]) == honest


def test_a_huge_discrepancy_costs_the_site_that_claims_it() -> None:
    found = FedDisco().weights([10, 10, 10], [1e38, 1.0, 1.0])
    assert found == pytest.approx([0, 0.5, 0.5])


def test_replies_that_are_dropped_do_not_count() -> None:
    replies = [reply(n, kl, w) for n, kl, w in zip(ROWS, KL, (1.0, 2.0, 4.0), strict=True)]
    algorithm = FedDisco()
    after = algorithm.aggregate(algorithm.init(vector(0)), replies[1:], ROUND)
    # p = (0.6, 0.4), d = (0, 1): 0.7 and 0.
    close(after.w.flat, 2)


def test_without_both_terms_it_is_the_mean_to_the_bit() -> None:
    torch.manual_seed(0)
    replies = [reply(n, 0.3 * n, *torch.randn(50).tolist()) for n in (3, 7, 11)]
    algorithm = FedDisco(a=0, b=0)
    after = algorithm.aggregate(algorithm.init(vector(*[0.0] * 50)), replies, ROUND)
    assert torch.equal(after.w.flat, average(replies).flat)


def test_clients_send_one_number_more() -> None:
    federation = Federation(FedDisco())
    last = federation.play(federation.start(1))[-1]
    plain = Federation(FedAvg())
    fedavg = plain.play(plain.start(1))[-1]
    assert size(last.sent) == size(fedavg.sent)
    assert [note.bytes for note in last.replies] == [note.bytes + 4 for note in fedavg.replies]
    assert all(note.inspected.upload.kl.shape == () for note in last.replies)


def test_a_round_is_the_naive_loop() -> None:
    whole, algorithm = parity.digits(), FedDisco(a=0.4, b=0.05)
    f = parity.model(algorithm, whole)
    w = f.weights()
    clients: list[Shard] = [
        replace(whole, rows=whole.rows[i]) for i in (slice(0, 20), slice(10, 30), slice(3, 36, 3))
    ]
    learner: Learner[Any, Any, Any, Any] = Learner(algorithm, f, parity.PLAN)
    cohort: OneByOne[Any, Any, Any, Any] = OneByOne(learner, clients, Stream(0))
    at = Round(1, 3, 3, 51)
    after = algorithm.aggregate(algorithm.init(w), cohort(Weights(w), [0, 1, 2], at), at)
    trained = []
    for k, data in enumerate(clients):
        client = naive.Client(parity.forward, parity.double(w), data.counts.tolist())
        rng = Stream(0).at("client", 1, k)
        batches = [(x.double(), y) for x, y in parity.PLAN.batches(data, rng)]
        trained.append(
            naive.train(
                client,
                naive.fedavg,
                batches,
                parity.PLAN.lr,
                parity.MOMENTUM,
                parity.PLAN.weight_decay,
            )
        )
    expected, weights = naive.feddisco(
        trained, [data.counts.tolist() for data in clients], a=0.4, b=0.05
    )
    assert max(weights) - min(weights) > 0.1
    assert parity.difference(after.w, expected) < 1e-5
