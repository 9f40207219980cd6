"""SCAFFOLD on two quadratics, where every number is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.scaffold import SCAFFOLD, Control, ControlVariate
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Classifier, Domain, Model
from fedadb.core.optimizers import SGD, Adam, AdamW, Optimizer, weight_of_steps
from fedadb.core.packing import size
from fedadb.core.schedules import Constant, Exponential
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.federate import federate, initial
from fedadb.engine.local import ClientMemory, Learner
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import close
from tests.conftest import toy_model
from tests.reference import naive
from tests.test_every_algorithm import CLIENTS, Federation, shards

# the test bed: L_k = h_k (w − a_k)² / 2, whose uniform optimum is 3


def quadratic(h: float, a: float, rows: int = 1) -> Shard:
    """A client whose rows are all (h, a)."""
    examples = Examples(torch.tensor([[h, a]] * rows), torch.zeros(rows, dtype=torch.int64))
    return Shard(examples, torch.arange(rows), 1, AsIs())


def squares(f: Model, w: Vector, batch: Any, ctx: Any) -> Tensor:
    h, a = batch.x.T
    mean: Tensor = (h * (w.flat - a) ** 2).mean() / 2
    return mean


class Quadratic(SCAFFOLD):
    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        return squares(f, w, batch, ctx)


class QuadraticFedAvg(FedAvg):
    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        return squares(f, w, batch, ctx)


def one_weight() -> Model:
    head = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(head.weight)
    return Model(Classifier(nn.Identity(), {"head": head}), Domain.unbounded((2,)), 1)


class After(NamedTuple):
    """A round's result: the server's numbers and the clients'."""

    w: float
    c: float
    trained: list[float]  # w_k of the clients of the round
    controls: list[float]  # c_k of the clients that have taken part


def plan(lr: float = 0.1, momentum: float = 0.0, steps: int = 3, batch: int = 10) -> LocalPlan:
    return LocalPlan(steps, batch, lr, 0.0, SGD(momentum), Constant())


def play(
    algorithm: Algorithm[Any, Any, Any, Any],
    how: LocalPlan,
    rounds: int,
    rows: tuple[int, int] = (1, 1),
    choose: Callable[[int], Sequence[int]] = lambda t: [0, 1],
) -> list[After]:
    learner = Learner(algorithm, one_weight(), how)
    clients = [quadratic(1, 0, rows[0]), quadratic(3, 4, rows[1])]
    cohort: OneByOne[Any, Any, Any, Any] = OneByOne(learner, clients, Stream(0))
    start = initial(learner, Round(0, rounds, 2, sum(rows)))
    found = []
    for now in federate(
        learner,
        cohort,
        choose=choose,
        rng=Stream(0),
        start=start,
        inspect=lambda reply: reply.w.flat.item(),
    ):
        controlled = isinstance(now.server, Control)
        memories = [cohort.memories[k].algorithm for k in sorted(cohort.memories)]
        found.append(
            After(
                now.server.w.flat.item(),
                now.server.c.flat.item() if controlled else 0.0,
                [note.inspected for note in now.replies],
                [memory.c.flat.item() for memory in memories] if controlled else [],
            )
        )
    return found


@pytest.mark.parametrize("weighted", [True, False])
def test_three_rounds_by_hand(weighted: bool) -> None:
    first, second, third = play(Quadratic(weighted=weighted), plan(), 3)
    assert first.trained == pytest.approx([0, 2.628], abs=1e-5)
    assert first.w == pytest.approx(1.314, abs=1e-5)
    assert first.controls == pytest.approx([0, -8.76], abs=1e-5)
    assert first.c == pytest.approx(-4.38, abs=1e-5)
    assert second.trained == pytest.approx([2.144886, 2.119482], abs=1e-5)
    assert second.w == pytest.approx(2.132184, abs=1e-5)
    assert second.controls == pytest.approx([1.610380, -7.064940], abs=1e-5)
    assert second.c == pytest.approx(-2.727280, abs=1e-5)
    assert third.w == pytest.approx(2.569630, abs=1e-5)
    assert third.c == pytest.approx(-1.458153, abs=1e-5)


def test_the_limit_is_the_optimum_and_that_of_fedavg_is_not() -> None:
    assert play(Quadratic(), plan(), 60)[-1].w == pytest.approx(3, abs=1e-5)
    assert play(QuadraticFedAvg(), plan(), 60)[-1].w == pytest.approx(2.831897, abs=1e-5)


def test_rounds_with_momentum_by_hand() -> None:
    rounds = play(Quadratic(), plan(0.01, 0.9, 10), 60)
    assert [one.w for one in rounds[:3]] == pytest.approx([1.897434, 2.679022, 2.923836], abs=1e-5)
    assert rounds[1].controls == pytest.approx([2.124054, -5.901571], abs=1e-4)
    assert rounds[-1].w == pytest.approx(3, abs=1e-4)


def test_with_momentum_a_division_by_the_number_of_steps_would_diverge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedadb.algorithms.scaffold.weight_of_steps", lambda _, steps: steps)
    w = [one.w for one in play(Quadratic(), plan(0.01, 0.9, 10), 8)]
    expected = [1.897434, 3.129989, 1.902636, 5.444526, -3.045722]
    assert w[:5] == pytest.approx(expected, abs=1e-4)
    assert w[7] == pytest.approx(91.106120, rel=1e-4)


def test_one_client_at_a_time_by_hand() -> None:
    rounds = play(Quadratic(), plan(), 3, choose=lambda t: [[0], [1], [0]][t - 1])
    assert [one.w for one in rounds] == pytest.approx([0, 2.628, 3.102792], abs=1e-5)
    assert [one.c for one in rounds] == pytest.approx([0, -4.38, -2.981320], abs=1e-5)


@pytest.mark.parametrize(("weighted", "limit"), [(True, 3.6), (False, 3.0)])
@pytest.mark.parametrize("batch", [10, 1])
def test_the_weights_of_the_clients_decide_the_limit_and_their_steps_do_not(
    weighted: bool, limit: float, batch: int
) -> None:
    """With batches of one row, the client with three rows takes three times as many steps."""
    how = plan(lr=0.05, batch=batch)
    last = play(Quadratic(weighted=weighted), how, 150, rows=(1, 3))[-1]
    assert last.w == pytest.approx(limit, abs=1e-4)


def test_the_servers_step_scales_the_mean_update() -> None:
    assert play(Quadratic(eta=0.5), plan(), 1)[-1].w == pytest.approx(0.657, abs=1e-5)
    assert play(Quadratic(eta=2.0), plan(), 1)[-1].w == pytest.approx(2.628, abs=1e-5)


def test_the_round_s_learning_rate_divides_the_update() -> None:
    """A constant gradient g gives c_k⁺ = g whatever the learning rate of the round is."""
    algorithm, how, w = SCAFFOLD(), plan(0.1, 0.9, 10), one_weight().weights()
    sent = Control(w, w.zeros())
    a = weight_of_steps(how.optimizer, 10)
    how = replace(how, schedule=Exponential(0.25))
    for t, factor in ((1, 1.0), (2, 0.25)):
        round = Round(t, 9, 2, 2)
        ctx = Context(
            sent, ControlVariate(w.zeros()), torch.tensor([1]), round, how, torch.tensor(10)
        )
        g = Vector(torch.full_like(w.flat, 0.7), w.layout)
        there = w - a * 0.1 * factor * g
        upload = algorithm.upload(one_weight(), there, quadratic(1, 0), ctx)
        close(upload.c.flat, 0.7)
        close(algorithm.remember(there, upload, ctx).c.flat, 0.7)


# the weight of S steps


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (1, 1),
        (2, 2.9),
        (3, 5.61),
        (5, 13.1441),
        (10, 41.381060),
        (20, 120.941899),
        (25, 166.461082),
        (50, 410.463840),
        (100, 910.002391),
    ],
)
def test_the_weight_of_steps_with_momentum(steps: int, expected: float) -> None:
    assert weight_of_steps(SGD(0.9), steps) == pytest.approx(expected, abs=1e-6)
    assert weight_of_steps(SGD(0), steps) == steps


def test_the_weight_of_steps_is_what_the_optimiser_does() -> None:
    """Steps of learning rate 1 along a constant gradient of 1."""
    w = one_weight().weights()
    optimizer = SGD(0.7)
    state = optimizer.start(w)
    for steps in range(1, 8):
        optimizer.step(w, Vector(torch.ones(1), w.layout), state, 1.0, 0.0)
        assert -w.flat.item() == pytest.approx(weight_of_steps(optimizer, steps), rel=1e-5)


@pytest.mark.parametrize("optimizer", [Adam(), AdamW(), SGD(0.9, nesterov=True)])
def test_other_optimisers_are_refused_before_training(optimizer: Optimizer) -> None:
    expected = r"^local\.optimizer = .*, which needs 'sgd' without nesterov$"
    with pytest.raises(BadInput, match=expected):
        Learner(SCAFFOLD(), toy_model(), LocalPlan(optimizer=optimizer))


# on a network


def test_the_first_round_is_fedavg_to_the_bit_and_the_second_is_not() -> None:
    ours, theirs = Federation(SCAFFOLD()), Federation(FedAvg())
    mine, plain = (one.play(one.start(2), chosen=(0, 1, 2, 3)) for one in (ours, theirs))
    assert torch.equal(mine[0].server.w.flat, plain[0].server.w.flat)
    assert not torch.equal(mine[1].server.w.flat, plain[1].server.w.flat)


def test_a_single_client_trains_as_with_fedavg() -> None:
    ends = []
    for algorithm in (SCAFFOLD(), SCAFFOLD(weighted=False), FedAvg()):
        learner: Learner[Any, Any, Any, Any] = Learner(
            algorithm, toy_model(), LocalPlan(2, 8, lr=0.05)
        )
        data = shards()[2]
        cohort: OneByOne[Any, Any, Any, Any] = OneByOne(learner, [data], Stream(0))
        start = initial(learner, Round(0, 4, 1, len(data)))
        last = list(federate(learner, cohort, choose=lambda t: [0], rng=Stream(0), start=start))[-1]
        ends.append(last.server.w.flat)
    assert torch.equal(ends[0], ends[2])
    assert torch.equal(ends[1], ends[2])


@pytest.mark.parametrize("weighted", [True, False])
def test_the_servers_control_variate_is_the_mean_of_all_clients(weighted: bool) -> None:
    federation = Federation(SCAFFOLD(weighted=weighted))
    rows = [len(shard) for shard in federation.cohort.shards]
    now = federation.start(0)
    for t in range(1, 6):
        before = dict(federation.cohort.memories)
        start = now._replace(round=now.round._replace(total=t))
        now = federation.play(start, chosen=(0, 2))[-1]
        q = [n / sum(rows) if weighted else 1 / CLIENTS for n in rows]
        expected = now.server.w.zeros()
        for k, memory in federation.cohort.memories.items():
            expected = expected + q[k] * memory.algorithm.c
            if k not in now.clients:
                assert memory is before[k]
        assert now.server.c.norm() > 0.1
        torch.testing.assert_close(now.server.c.flat, expected.flat, atol=1e-5, rtol=1e-4)


def test_both_ways_carry_twice_the_model() -> None:
    federation = Federation(SCAFFOLD())
    last = federation.play(federation.start(1))[-1]
    weights = size(Weights(last.server.w))
    assert size(last.sent) == 2 * weights
    assert last.replies[0].bytes == 2 * weights + last.replies[0].inspected.examples.nbytes


def test_local_training_is_the_naive_loop() -> None:
    data = parity.digits()
    f = parity.model(SCAFFOLD(), data)
    w = f.weights()
    with Stream(3).seeded():
        c, c_k = (Vector(0.01 * torch.randn_like(w.flat), w.layout) for _ in range(2))
    how = replace(parity.PLAN, lr=0.1, schedule=Exponential(0.5))
    reply, memory = Learner(SCAFFOLD(), f, how).train(
        data,
        Control(w, c),
        ClientMemory(ControlVariate(c_k), ()),
        Round(2, 9, 4, 40),
        Stream(0),
    )
    client = naive.Client(
        parity.forward, parity.double(w), data.counts.tolist(), parity.double(c_k)
    )
    batches = [(x.double(), y) for x, y in how.batches(data, Stream(0))]

    def controlled(who: naive.Client, v: naive.Tensors, batch: naive.Batch) -> naive.Tensors:
        return naive.scaffold(who, v, batch, parity.double(c))

    trained = naive.train(client, controlled, batches, 0.05, parity.MOMENTUM, how.weight_decay)
    new = naive.scaffold_memory(
        client, trained, parity.double(c), 0.05, parity.MOMENTUM, len(batches)
    )
    assert naive.norm({n: t - client.received[n] for n, t in trained.items()}) > 0.05
    assert parity.difference(reply.w, trained) < 1e-5
    assert parity.difference(memory.algorithm.c, new) < 1e-4
    change = {n: new[n] - client.memory[n] for n in new}
    assert parity.difference(reply.upload.c, change) < 1e-4
