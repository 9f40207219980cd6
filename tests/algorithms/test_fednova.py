from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fednova import FedNova, WeightedSteps
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.optimizers import SGD, Adam, Optimizer, weight_of_steps
from fedadb.core.packing import size
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.federate import federate, initial
from fedadb.engine.local import Learner
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import vector
from tests.algorithms.test_scaffold import (
    QuadraticFedAvg,
    one_weight,
    plan,
    quadratic,
    squares,
)
from tests.conftest import toy_model
from tests.reference import naive
from tests.test_every_algorithm import Federation, shards

ROUND = Round(1, 9, 2, 4)


def steps_reply(n: int, w: float, steps: int, momentum: float = 0.0) -> Reply[WeightedSteps]:
    a = weight_of_steps(SGD(momentum), steps)
    return Reply(WeightedSteps(vector(w), torch.tensor(a)), torch.tensor(n))


def aggregated(w: float, replies: Sequence[Reply[WeightedSteps]]) -> float:
    return FedNova().aggregate(Weights(vector(w)), replies, ROUND).w.flat.item()


@pytest.mark.parametrize(("momentum", "expected"), [(0.0, 1.6375), (0.9, 1.358402)])
def test_the_mean_by_hand(momentum: float, expected: float) -> None:
    """S = (2, 5); without momentum τ_eff = 4.25, and the multipliers are 0.53125 and 0.6375."""
    replies = [steps_reply(1, 0.4, 2, momentum), steps_reply(3, 2.5, 5, momentum)]
    assert aggregated(1.0, replies) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("momentum", "multipliers"), [(0.0, (0.583333, 0.729167)), (0.9, (1.305727, 0.709539))]
)
def test_the_multipliers_of_a_small_and_a_large_client(
    momentum: float, multipliers: tuple[float, float]
) -> None:
    """100 and 500 rows are 5 and 20 steps. The multipliers do not sum to 1."""
    how = LocalPlan()
    steps = [len(how.sizes(n)) for n in (100, 500)]
    assert steps == [5, 20]
    for moved, expected in zip(((1, 0), (0, 1)), multipliers, strict=True):
        replies = [
            steps_reply(n, w, s, momentum) for n, w, s in zip((100, 500), moved, steps, strict=True)
        ]
        assert aggregated(0.0, replies) == pytest.approx(expected, abs=1e-6)


def test_a_model_that_no_client_changes_stays() -> None:
    """The multipliers apply to updates and not to weights."""
    assert aggregated(3.0, [steps_reply(1, 3.0, 2), steps_reply(3, 3.0, 5)]) == 3


def test_a_weight_below_that_of_one_step_is_not_believed() -> None:
    tiny = Reply(WeightedSteps(vector(2.0), torch.tensor(1e-20)), torch.tensor(1))
    assert aggregated(0.0, [tiny, steps_reply(1, 1.0, 1)]) == 1.5


class Nova(FedNova):
    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        return squares(f, w, batch, ctx)


@pytest.mark.parametrize(
    ("algorithm", "momentum", "limit"),
    [
        (Nova(), 0.0, 2.900783),
        (QuadraticFedAvg(), 0.0, 3.718206),
        (Nova(), 0.9, 2.788088),
        (QuadraticFedAvg(), 0.9, 3.881753),
    ],
)
def test_the_limit_with_unequal_steps_is_near_the_optimum(
    algorithm: Algorithm[Any, Any, Any, Any], momentum: float, limit: float
) -> None:
    """Two equally large quadratics whose optimum is 3; the second client takes 10 steps, not 2."""
    clients = [
        (Learner(algorithm, one_weight(), plan(0.01, momentum, steps)), data)
        for steps, data in ((2, quadratic(1, 0)), (10, quadratic(3, 4)))
    ]
    s = algorithm.init(one_weight().weights())
    for _ in range(200 if momentum == 0 else 60):
        replies = [c.train(data, s, None, ROUND, Stream(0))[0] for c, data in clients]
        s = algorithm.aggregate(s, replies, ROUND)
    assert s.w.flat.item() == pytest.approx(limit, abs=2e-4)


def test_equal_steps_are_fedavg_to_the_bit_and_unequal_steps_are_not() -> None:
    """Batches of 16 rows hold all rows of each client, so that an epoch is one step."""
    for batch_size, equal in ((16, True), (10, False)):
        how = LocalPlan(2, batch_size, lr=0.05)
        ours, theirs = Federation(FedNova(), how), Federation(FedAvg(), how)
        mine, plain = (one.play(one.start(2), chosen=(0, 1, 2)) for one in (ours, theirs))
        same = [
            torch.equal(a.server.w.flat, b.server.w.flat) for a, b in zip(mine, plain, strict=True)
        ]
        assert same == [equal, equal]


def test_one_client_per_round_is_fedavg_to_the_bit() -> None:
    ours, theirs = Federation(FedNova()), Federation(FedAvg())
    mine, plain = (one.play(one.start(3), chosen=(1,)) for one in (ours, theirs))
    assert torch.equal(mine[-1].server.w.flat, plain[-1].server.w.flat)


@pytest.mark.parametrize("optimizer", [Adam(), SGD(0.9, nesterov=True)])
def test_other_optimisers_are_refused_before_training(optimizer: Optimizer) -> None:
    expected = r"^local\.optimizer = .*, which needs 'sgd' without nesterov$"
    with pytest.raises(BadInput, match=expected):
        Learner(FedNova(), toy_model(), LocalPlan(optimizer=optimizer))


def test_a_client_sends_one_number_more_than_with_fedavg() -> None:
    federation = Federation(FedNova())
    last = federation.play(federation.start(1))[-1]
    weights = size(Weights(last.server.w))
    assert size(last.sent) == weights
    assert last.replies[0].bytes == weights + last.replies[0].inspected.examples.nbytes + 4


def test_a_round_is_that_of_naive_loops() -> None:
    """Clients with 36, 9 and 20 digits, in batches of 8: 10, 4 and 6 steps."""
    whole = parity.digits()
    clients = [
        replace(whole, rows=whole.rows[which]) for which in (slice(36), slice(9), slice(16, 36))
    ]
    learner = Learner(FedNova(), parity.model(FedNova(), whole), parity.PLAN)
    cohort = OneByOne(learner, clients, Stream(0))
    start = initial(learner, Round(0, 1, 3, 65))
    (now,) = federate(learner, cohort, choose=lambda t: [0, 1, 2], rng=Stream(0), start=start)
    received, how = parity.double(start.server.w), parity.PLAN
    results, steps = [], []
    for k, data in enumerate(clients):
        rng = Stream(0).at("client", 1, k)
        batches = [(x.double(), y) for x, y in how.batches(data, rng)]
        client = naive.Client(parity.forward, received, data.counts.tolist())
        results.append(
            naive.train(client, naive.fedavg, batches, how.lr, parity.MOMENTUM, how.weight_decay)
        )
        steps.append(len(batches))
    assert steps == [10, 4, 6]
    expected = naive.fednova(received, results, [36, 9, 20], steps, parity.MOMENTUM)
    assert naive.norm({n: t - received[n] for n, t in expected.items()}) > 0.05
    assert parity.difference(now.server.w, expected) < 1e-5


def test_a_client_without_full_batches_counts_its_last_one() -> None:
    learner = Learner(FedNova(), toy_model(), LocalPlan(3, 8, lr=0.05, optimizer=SGD(0)))
    rows = {1: 3, 8: 3, 9: 6}
    for n, steps in rows.items():
        data = replace(shards()[2], rows=torch.arange(n))
        reply, _ = learner.train(data, Weights(learner.f.weights()), None, ROUND, Stream(0))
        assert reply.upload.a == steps
