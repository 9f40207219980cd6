from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedrod import FedRoD, PersonalHead
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Batch, LocalPlan
from fedadb.core.model import Model
from fedadb.core.packing import pack, size
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.local import ClientMemory, Learner
from fedadb.engine.stacked import Stacked
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import close, linear_model, weights_for
from tests.conftest import toy_model, toy_shard
from tests.reference import naive
from tests.test_every_algorithm import CLIENTS, Federation, shards

COUNTS = torch.tensor([10, 5, 0])
Z_GENERIC, Z_PERSONAL, Y = torch.tensor([[2.0, 1, 0]]), torch.tensor([[0.5, 0, -1]]), 1


def context(sent: Vector, counts: Tensor, head: PersonalHead) -> Context[Weights, PersonalHead]:
    round, steps = Round(1, 9, 2, 20), torch.tensor(1)
    return Context(Weights(sent), head, counts, round, LocalPlan(), steps)


def by_hand() -> tuple[Vector, Batch, Context[Weights, PersonalHead]]:
    """One input, (1), for which the two linear heads have the logits z_G and z_P."""
    sent = weights_for(Z_GENERIC)
    ctx = context(sent, COUNTS, PersonalHead(Z_PERSONAL.T, torch.zeros(3)))
    return FedRoD().start(ctx), Batch(torch.ones(1, 1), torch.tensor([Y])), ctx


@dataclass(frozen=True)
class BalancedFedAvg(FedAvg):
    """FedRoD without personal heads."""

    gamma: float = 1.0

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Any]) -> Tensor:
        return F.cross_entropy(f(w, batch.x).logits + self.gamma * ctx.counts.log(), batch.y)


def test_losses_and_gradients_by_hand() -> None:
    f, (w, batch, ctx) = linear_model(1, 3), by_hand()
    close(FedRoD().loss(f, w, batch, ctx), 1.861995 + 1.725802)
    g = FedRoD().gradient(f, w, batch, ctx)
    generic, personal = (0.844638, -0.844638, 0), (0.797876, -0.821970, 0.024094)
    for part in ("weight", "bias"):  # the input is 1
        close(g[f"heads.head.{part}"], *generic)
        close(g[f"personal.{part}"], *personal)
    assert g["heads.head.bias"][2] == 0  # of a class that the client lacks


def test_the_personal_prediction_is_the_sum_of_both_heads() -> None:
    f, (w, batch, _) = linear_model(1, 3), by_hand()
    close(FedRoD().personal(f, w, batch.x), 2.5, 1, -1)
    data, f = toy_shard(9), toy_model()
    ctx = context(f.weights(), data.counts, FedRoD().memory(f.weights()))
    x = data.transform.normalise(data.examples.x)
    before = FedRoD().personal(f, FedRoD().start(ctx), x)
    assert torch.equal(before, f(f.weights(), x).logits)  # a new head changes nothing


def test_the_personal_loss_trains_the_personal_head_alone() -> None:
    """The gradient of the model does not depend on the personal head."""
    f, data = toy_model(), toy_shard(9)
    batch, zeros = Batch(data.transform.normalise(data.examples.x), data.examples.y), None
    for scale in (0.0, 3.0):
        head = PersonalHead(torch.full((3, 8), scale), torch.arange(3.0))
        ctx = context(f.weights(), data.counts, head)
        g = FedRoD().gradient(f, FedRoD().start(ctx), batch, ctx)
        model, personal = g.split(f.layout)
        assert personal.norm() > 0.1
        zeros = model.flat if zeros is None else zeros
        assert torch.equal(model.flat, zeros)


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_the_global_model_is_that_of_a_run_without_personal_heads(gamma: float) -> None:
    ours, theirs = Federation(FedRoD(gamma)), Federation(BalancedFedAvg(gamma))
    for mine, plain in zip(ours.play(ours.start(4)), theirs.play(theirs.start(4)), strict=True):
        assert torch.equal(mine.server.w.flat, plain.server.w.flat)
        for reply, other in zip(mine.replies, plain.replies, strict=True):
            assert torch.equal(reply.inspected.w.flat, other.inspected.w.flat)
            assert reply.bytes == other.bytes
    assert any(m.algorithm.weight.norm() > 0.1 for m in ours.cohort.memories.values())


def test_a_personal_head_is_in_its_client_s_memory_and_nowhere_else() -> None:
    federation = Federation(FedRoD())
    last = federation.play(federation.start(2))[-1]
    layout, head = federation.f.layout, size(FedRoD().memory(federation.f.weights()))
    reply = last.replies[0].inspected
    for w in (last.server.w, last.sent.w, reply.w, FedRoD().deployed(last.server)):
        assert w.layout == layout
        assert w.flat.untyped_storage().nbytes() == 4 * sum(layout.sizes)  # no larger tensor's view
    assert last.replies[0].bytes == size(Weights(last.sent.w)) + reply.examples.nbytes
    assert head == 4 * (8 + 1) * 3  # (d + 1) C numbers
    for memory in federation.cohort.memories.values():
        assert set(pack(memory.algorithm)) == {"weight", "bias"}
        assert size(memory) == head
        storage = memory.algorithm.weight.untyped_storage()
        assert storage.nbytes() == memory.algorithm.weight.nbytes


def test_a_personal_head_waits_for_its_client() -> None:
    """Its client trains in rounds 1 and 3, and goes on from where its head was."""
    algorithm, data = FedRoD(), shards()
    learner = Learner(algorithm, toy_model(), LocalPlan(2, 8, lr=0.05))
    cohort: OneByOne[Any, Any, Any, Any] = OneByOne(learner, data, Stream(0))
    sent = Weights(learner.f.weights())
    list(cohort(sent, [0], Round(1, 3, CLIENTS, 47)))
    kept = cohort.memories[0].algorithm
    copy = PersonalHead(*(t.clone() for t in kept))
    list(cohort(Weights(1.1 * sent.w), [1, 2], Round(2, 3, CLIENTS, 47)))
    assert cohort.memories[0].algorithm is kept
    for tensor, before in zip(kept, copy, strict=True):
        assert torch.equal(tensor, before)
    training = learner.begin(data[0], sent, cohort.memories[0], Round(3, 3, CLIENTS, 47), Stream(0))
    assert torch.equal(training.w["personal.weight"], kept.weight)
    assert torch.equal(training.w["heads.head.weight"], sent.w["heads.head.weight"])


def test_clients_of_any_classes_have_finite_losses_and_gradients_side_by_side() -> None:
    """One class, two, all. The rows of classes that a client lacks have no gradient."""
    f, data = toy_model(), toy_shard(9)
    sent, x = f.weights(), data.transform.normalise(data.examples.x)
    counts = torch.tensor([[9, 0, 0], [5, 4, 0], [3, 3, 3]])
    labels = torch.tensor([[0] * 9, [0, 1] * 4 + [0], [0, 1, 2] * 3])
    head = PersonalHead(torch.ones(3, 8), torch.ones(3))
    w = 1.3 * FedRoD().start(context(sent, counts[0], head))

    def direction(n: Tensor, y: Tensor) -> Vector:
        return FedRoD().gradient(f, w, Batch(x, y), context(sent, n, head))

    stacked = vmap(direction)(counts, labels).flat
    assert stacked.isfinite().all()
    for one, n, y in zip(stacked, counts, labels, strict=True):
        alone = direction(n, y)
        torch.testing.assert_close(one, alone.flat, atol=1e-6, rtol=1e-4)
        assert (alone["heads.head.weight"][n == 0] == 0).all()
        assert (alone["heads.head.bias"][n == 0] == 0).all()


def test_stacked_clients_keep_the_heads_of_single_ones() -> None:
    heads = []
    for kind in (OneByOne, Stacked):
        learner = Learner(FedRoD(), toy_model(), LocalPlan(2, 8, lr=0.05))
        cohort: Any = kind(learner, shards(), Stream(0))
        for t in (1, 2):
            list(cohort(Weights(learner.f.weights()), [0, 1, 2, 3], Round(t, 2, CLIENTS, 47)))
        heads.append([cohort.memories[k].algorithm for k in range(CLIENTS)])
    for one, other in zip(*heads, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


def test_clients_with_equally_many_rows_of_each_class_train_as_with_fedavg() -> None:
    f, data = toy_model(), toy_shard(9)
    batch = Batch(data.transform.normalise(data.examples.x), data.examples.y)
    ctx = context(f.weights(), data.counts, FedRoD().memory(f.weights()))
    ours, _ = FedRoD().gradient(f, FedRoD().start(ctx), batch, ctx).split(f.layout)
    plain: Context[Weights] = ctx._replace(memory=())  # type: ignore[assignment, arg-type]
    theirs = FedAvg().gradient(f, f.weights(), batch, plain)
    torch.testing.assert_close(ours.flat, theirs.flat)


def test_local_training_is_the_naive_loop() -> None:
    data = parity.digits()
    f = parity.model(FedRoD(), data)
    w = f.weights()
    with Stream(3).seeded():
        head = PersonalHead(torch.randn(10, parity.HIDDEN), torch.randn(10))
    learner = Learner(FedRoD(gamma=0.7), f, replace(parity.PLAN, epochs=1))
    reply, memory = learner.train(
        data, Weights(w), ClientMemory(head, ()), Round(1, 3, 4, 40), Stream(0)
    )
    start = FedRoD().start(context(w, data.counts, head))
    client = naive.Client(parity.forward, parity.double(start), data.counts.tolist())
    batches = [(x.double(), y) for x, y in learner.plan.batches(data, Stream(0))]

    def both(who: naive.Client, v: naive.Tensors, batch: naive.Batch) -> naive.Tensors:
        return naive.fedrod(who, v, batch, gamma=0.7)

    decay = parity.PLAN.weight_decay
    trained = naive.train(client, both, batches, parity.PLAN.lr, parity.MOMENTUM, decay)
    moved = {n: t - client.received[n] for n, t in trained.items()}
    assert min(t.norm() for t in moved.values()) > 0.01
    model = {n: trained[n] for n in w.layout.names}
    assert parity.difference(reply.w, model) < 1e-5
    own = Vector.of({f"personal.{name}": t for name, t in memory.algorithm._asdict().items()})
    assert parity.difference(own, {n: trained[n] for n in own.layout.names}) < 1e-5
