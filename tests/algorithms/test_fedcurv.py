from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedcurv import Curvature, FedCurv, Report
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.model import Classifier, Domain, Model
from fedadb.core.packing import size
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs
from fedadb.core.vector import Vector, Weights, gradient
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.federate import federate, initial
from fedadb.engine.local import ClientMemory, Learner
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import close, vector
from tests.algorithms.test_scaffold import one_weight, quadratic, squares
from tests.conftest import toy_model, toy_shard
from tests.reference import naive
from tests.test_every_algorithm import CLIENTS, Federation, shards

NO_MODEL: Any = None


class Quadratic(FedCurv):
    """L_k = h_k (w − a_k)² / 2, whose curvature h_k takes the place of the Fisher information."""

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        return squares(f, w, batch, ctx) + self.lam * self.penalty(w, ctx)

    def fisher_diagonal(self, f: Model, w: Vector, data: Shard, batch_size: int) -> Vector:
        return Vector(data.examples.x[:1, 0], w.layout)


def context(sent: Curvature, memory: Report) -> Context[Curvature, Report]:
    return Context(sent, memory, torch.tensor([1]), Round(1, 9, 2, 2), LocalPlan(), torch.tensor(1))


def test_the_penalty_by_hand() -> None:
    """Client 2 reported u = (3, 1) at (0, 2). Σ u (w − w_2)² is 4, of which 4 is constant."""
    u, w, own = vector(3, 1), vector(1, 1), vector(5, 7)
    sent = Curvature(w, u + own, u * vector(0, 2) + 2 * own)
    ctx = context(sent, Report(own, 2 * own))
    u_others, v_others = FedCurv().others(ctx)
    close(u_others.flat, 3, 1)
    close(v_others.flat, 0, 2)
    close(FedCurv().penalty(w, ctx), 0)
    close(gradient(lambda v: 0.5 * FedCurv().penalty(v, ctx), w).flat, 3, -1)


def test_rounds_of_exact_local_minimisation_by_hand() -> None:
    """The test bed of SCAFFOLD with λ = 1; a client's minimum is (h a + 2 Q) / (h + 2 P)."""
    algorithm, f = Quadratic(), one_weight()
    clients = [(1.0, 0.0), (3.0, 4.0)]
    data = [quadratic(h, a) for h, a in clients]
    s = algorithm.init(f.weights())
    memories = [algorithm.memory(s.w) for _ in clients]
    expected = [
        ((0, 4), 2),
        ((3.428571, 2.4), 2.914286),
        ((2.057143, 3.771429), 2.914286),
        ((3.232653, 3.222857), 3.227755),
    ]
    for w_k, w in expected:
        replies = []
        for k, (h, a) in enumerate(clients):
            ctx = context(s, memories[k])
            u, v = algorithm.others(ctx)
            there = Vector((h * a + 2 * v.flat) / (h + 2 * u.flat), s.w.layout)
            batch = next(LocalPlan().batches(data[k], Stream(0)))
            assert algorithm.gradient(f, there, batch, ctx).norm() < 1e-4
            close(there.flat, w_k[k])
            upload = algorithm.upload(f, there, data[k], ctx)
            memories[k] = algorithm.remember(there, upload, ctx)
            replies.append(Reply(upload, torch.tensor(1)))
        s = algorithm.aggregate(s, replies, ctx.round)
        close(s.w.flat, w)


# the Fisher information


def rows_with(*gradients: float) -> tuple[Model, Shard]:
    """A model and rows whose gradient with respect to its weight, at 0, has half these values."""
    body = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(body.weight)
    head = nn.Linear(1, 2, bias=False)
    head.weight.requires_grad_(False)
    head.weight.copy_(torch.tensor([[1.0], [0.0]]))
    f = Model(Classifier(body, {"head": head}), Domain.unbounded((1,)), 2)
    x = torch.tensor([[float(g)] for g in gradients])
    y = torch.ones(len(gradients), dtype=torch.int64)
    return f, Shard(Examples(x, y), torch.arange(len(x)), 2, AsIs())


@pytest.mark.parametrize(
    ("algorithm", "batch_size", "expected"),
    [(FedCurv(fisher="sample"), 4, 2.5), (FedCurv(), 1, 2.5), (FedCurv(), 4, 1.0)],
)
def test_the_fisher_information_by_hand(
    algorithm: FedCurv, batch_size: int, expected: float
) -> None:
    """Rows with the gradients 1, −1, 2 and 2; at w = 0 the probabilities are ½."""
    f, data = rows_with(1, -1, 2, 2)
    u = algorithm.fisher_diagonal(f, f.weights(), data, batch_size)
    close(4 * u.flat, expected)


def test_batches_of_two_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the rows, the means are 0 and 2."""
    monkeypatch.setattr("torch.randperm", lambda n, generator: torch.arange(n))
    f, data = rows_with(1, -1, 2, 2)
    close(4 * FedCurv().fisher_diagonal(f, f.weights(), data, 2).flat, 2.0)


@pytest.mark.parametrize(("batch_size", "size", "batches"), [(8, 20, 3), (8, 24, 4), (7, 500, 6)])
def test_batches_are_taken_until_they_have_more_rows_than_asked_for(
    batch_size: int, size: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the reference code, where 500 of many rows are four batches of 128."""
    seen = []

    def count(f: Model, w: Vector, x: Tensor, y: Tensor) -> Vector:
        seen.append(len(y))
        return w

    monkeypatch.setattr("fedadb.algorithms.fedcurv.squared_gradient", count)
    f = toy_model()
    FedCurv(size=size).fisher_diagonal(f, f.weights(), toy_shard(40), batch_size)
    assert len(seen) == batches
    assert sum(seen) == min(40, batches * batch_size)


def test_batches_of_the_fisher_information_mix_the_classes() -> None:
    """The rows of a client may be sorted by class."""
    f, data = toy_model(), toy_shard(60)
    by_class = replace(data, rows=torch.argsort(data.labels, stable=True))
    one, other = (
        FedCurv(size=1).fisher_diagonal(f, f.weights(), shard, 20)
        for shard in (by_class, replace(by_class, rows=by_class.rows[:20]))
    )
    assert not torch.allclose(one.flat, other.flat)


# on a network


def test_the_first_round_is_fedavg_to_the_bit_and_the_second_is_not() -> None:
    ours, theirs = Federation(FedCurv()), Federation(FedAvg())
    mine, plain = (one.play(one.start(2), chosen=(0, 1, 2, 3)) for one in (ours, theirs))
    assert torch.equal(mine[0].server.w.flat, plain[0].server.w.flat)
    assert not torch.equal(mine[1].server.w.flat, plain[1].server.w.flat)


def test_without_a_penalty_no_fisher_information_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("fedadb.algorithms.fedcurv.squared_gradient")
    federation = Federation(FedCurv(lam=0.0))
    last = federation.play(federation.start(2))[-1]
    assert last.server.u.norm() == 0


def test_a_single_client_has_no_others() -> None:
    ends = []
    for algorithm in (FedCurv(), FedAvg()):
        learner: Learner[Any, Any, Any, Any] = Learner(
            algorithm, toy_model(), LocalPlan(2, 8, lr=0.05)
        )
        data = shards()[2]
        cohort: OneByOne[Any, Any, Any, Any] = OneByOne(learner, [data], Stream(0))
        start = initial(learner, Round(0, 4, 1, len(data)))
        last = list(federate(learner, cohort, choose=lambda t: [0], rng=Stream(0), start=start))[-1]
        ends.append(last.server.w.flat)
    assert torch.equal(*ends)


def test_the_server_s_sums_are_those_of_all_clients_last_reports() -> None:
    """Also of clients that no longer take part; a report is v = u ∘ w."""
    federation = Federation(FedCurv())
    now = federation.start(0)
    for t in range(1, 6):
        before = dict(federation.cohort.memories)
        start = now._replace(round=now.round._replace(total=t))
        now = federation.play(start, chosen=(0, 2))[-1]
        u, v = now.server.w.zeros(), now.server.w.zeros()
        for k, memory in federation.cohort.memories.items():
            u, v = u + memory.algorithm.u, v + memory.algorithm.v
            if k not in now.clients:
                assert memory is before[k]
        assert now.server.u.norm() > 1e-3
        torch.testing.assert_close(now.server.u.flat, u.flat, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(now.server.v.flat, v.flat, atol=1e-6, rtol=1e-4)
        for k, note in zip(now.clients, now.replies, strict=True):
            report = federation.cohort.memories[k].algorithm
            expected = (report.u * note.inspected.w).flat
            torch.testing.assert_close(report.v.flat, expected, atol=1e-6, rtol=1e-4)
    assert len(federation.cohort.memories) == CLIENTS


def test_every_client_of_a_round_gets_the_same_sums() -> None:
    """With u = (1, 2, 3) the others are 5, 4 and 3, whoever comes first."""
    sent = Curvature(vector(0), vector(6), vector(0))
    found = [FedCurv().others(context(sent, Report(vector(u), vector(0)))).u for u in (1, 2, 3)]
    assert [u.flat.item() for u in found] == [5, 4, 3]
    assert sent.u.flat.item() == 6


def test_a_curvature_below_zero_is_none() -> None:
    sent = Curvature(vector(0, 0), vector(1.0, 2.0), vector(0, 0))
    ctx = context(sent, Report(vector(1.5, 0.5), vector(0, 0)))
    close(FedCurv().others(ctx).u.flat, 0, 1.5)
    close(FedCurv().measure(NO_MODEL, NO_MODEL, ctx)["largest_fisher"], 1.5)


def test_both_ways_carry_three_times_the_model_and_a_client_keeps_twice() -> None:
    federation = Federation(FedCurv())
    last = federation.play(federation.start(1))[-1]
    weights, reply = size(Weights(last.server.w)), last.replies[0].inspected
    assert size(last.sent) == 3 * weights
    beside = reply.examples.nbytes + reply.measured["largest_fisher"].nbytes
    assert last.replies[0].bytes == 3 * weights + beside
    assert size(federation.cohort.memories[last.clients[0]]) == 2 * weights


def test_local_training_is_the_naive_loop() -> None:
    data, algorithm = parity.digits(), FedCurv(lam=0.7, size=20)
    f = parity.model(algorithm, data)
    w = f.weights()
    with Stream(3).seeded():
        other, own = (Vector(torch.rand_like(w.flat), w.layout) for _ in range(2))
        there = w + Vector(0.1 * torch.randn_like(w.flat), w.layout)
    sent = Curvature(w, other + own, other * there + own)
    reply, kept = Learner(algorithm, f, parity.PLAN).train(
        data, sent, ClientMemory(Report(own, own), ()), Round(2, 9, 4, 40), Stream(0)
    )
    client = naive.Client(parity.forward, parity.double(w), data.counts.tolist())
    batches = [(x.double(), y) for x, y in parity.PLAN.batches(data, Stream(0))]

    def penalised(who: naive.Client, v: naive.Tensors, batch: naive.Batch) -> naive.Tensors:
        return naive.fedcurv(who, v, batch, 0.7, [(parity.double(other), parity.double(there))])

    how = parity.PLAN
    trained = naive.train(client, penalised, batches, how.lr, parity.MOMENTUM, how.weight_decay)
    assert naive.norm({n: t - client.received[n] for n, t in trained.items()}) > 0.05
    assert parity.difference(reply.w, trained) < 1e-5
    order = torch.randperm(36, generator=Stream(0).at("fisher").generator())
    rows = [data.rows[order[i : i + 8]] for i in (0, 8, 16)]
    x, y = data.examples.x, data.examples.y
    fisher = naive.fisher(
        client, trained, [(data.transform.normalise(x[r]).double(), y[r]) for r in rows]
    )
    assert parity.difference(kept.algorithm.u, fisher) < 1e-4
    assert (
        parity.difference(kept.algorithm.v, {n: u * trained[n] for n, u in fisher.items()}) < 1e-4
    )
