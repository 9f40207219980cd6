import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad

from fedadb.algorithms.fedcog import (
    ComplementedBatch,
    FedCOG,
    agreement,
    shortfall,
    shuffled,
)
from fedadb.core.algorithm import Context, PreviousModel, Round
from fedadb.core.data import Batch, LocalPlan, Shard
from fedadb.core.losses import distil
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.local import ClientMemory, Learner
from fedadb.engine.stacked import Stacked
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import close
from tests.conftest import toy_model, toy_shard
from tests.reference import naive
from tests.test_every_algorithm import CLIENTS, Federation, shards

QUICK = FedCOG(first_round=1, images=12, steps=3, eta=0.1)


def context(
    f: Model, data: Shard, previous: Vector | None = None, t: int = 1
) -> Context[Weights, PreviousModel]:
    sent, round = f.weights(), Round(t, 9, 2, 20)
    memory = PreviousModel(sent if previous is None else previous)
    return Context(Weights(sent), memory, data.counts, round, LocalPlan(1, 4), torch.tensor(3))


def drawn(algorithm: FedCOG, f: Model, data: Shard, ctx: Any) -> list[Any]:
    return list(algorithm.batches(f, data, ctx, Stream(0)))


def skewed() -> Shard:
    """Five rows of class 0, one of class 1 and none of class 2."""
    return replace(toy_shard(18), rows=torch.tensor([0, 3, 6, 9, 12, 1]))


# numbers


def test_inputs_make_up_for_the_rows_that_classes_lack() -> None:
    counts = torch.tensor([5, 1, 0])
    assert shortfall(counts).tolist() == [0, 4, 5]
    assert torch.bincount(FedCOG().classes(counts), minlength=3).tolist() == [0, 113, 142]
    assert len(FedCOG().classes(torch.tensor([4, 4, 4]))) == 0
    assert FedCOG(images=10).classes(torch.tensor([1, 0])).tolist() == [1] * 10


def test_real_and_generated_rows_weigh_as_many_as_they_stand_for() -> None:
    """With n = (5, 1, 0): 6 rows, and 9 that are lacking."""
    f, data = toy_model(), skewed()
    batch, ctx, w = drawn(QUICK, f, data, context(f, data))[0], context(f, data), 1.2 * f.weights()
    local = F.cross_entropy(f(w, batch.local.x).logits, batch.local.y)
    taught = distil(f(w, batch.x).logits, batch.z, QUICK.tau)
    assert taught > 1e-4
    torch.testing.assert_close(QUICK.loss(f, w, batch, ctx), 0.4 * local + 0.6 * taught)


def test_the_temperature_is_that_of_the_distillation() -> None:
    f, data = toy_model(), skewed()
    batch, ctx, w = drawn(QUICK, f, data, context(f, data))[0], context(f, data), 1.2 * f.weights()
    local = F.cross_entropy(f(w, batch.local.x).logits, batch.local.y)
    warm = replace(QUICK, tau=3.0)
    expected = 0.4 * local + 0.6 * distil(f(w, batch.x).logits, batch.z, 3.0)
    torch.testing.assert_close(warm.loss(f, w, batch, ctx), expected)
    assert not torch.equal(warm.loss(f, w, batch, ctx), QUICK.loss(f, w, batch, ctx))


def test_agreement_by_hand() -> None:
    """KL(m ‖ ·), and not Jensen and Shannon's KL(· ‖ m), by which it would be 1 − 0.208126."""
    close(agreement(torch.tensor([[2.0, 0]]), torch.tensor([[0.0, 1]])), 0.749234)


def test_complete_disagreement_has_no_gradient() -> None:
    p, q = torch.tensor([[9.0, 0]]), torch.tensor([[0.0, 9]])
    assert agreement(p, q) == 0
    for argument in (0, 1):
        assert (grad(agreement, argnums=argument)(p, q) == 0).all()


def test_equal_models_agree_and_nothing_pulls_them_apart() -> None:
    z = torch.tensor([[2.0, 0, 1], [0, 0, 7]])
    assert agreement(z, z) == 1
    assert grad(lambda v: agreement(v, v))(z).abs().max() < 1e-6


# generation


def test_the_global_model_assigns_the_inputs_to_their_classes() -> None:
    f, data = toy_model(), skewed()
    algorithm = FedCOG(first_round=1, images=9, steps=60, eta=0.1)
    ctx = context(f, data)
    c = algorithm.classes(data.counts)
    x = algorithm.generate(f, c, ctx, Stream(1).generator())
    noise = torch.randn(len(c), 1, 4, 4, generator=Stream(1).generator())
    before, after = (f(ctx.sent.w, v).logits.argmax(1) == c for v in (noise, x))
    assert after.sum() >= 8 > before.sum()


def test_the_previous_model_disagrees_on_the_inputs() -> None:
    f, data = toy_model(), skewed()
    ctx, c = context(f, data, previous=toy_model(seed=1).weights()), torch.tensor([1, 2, 2])

    def agreed(lam: float) -> Tensor:
        algorithm = FedCOG(steps=40, eta=0.1, lam=lam)
        x = algorithm.generate(f, c, ctx, Stream(1).generator())
        return agreement(f(ctx.memory.w, x).logits, f(ctx.sent.w, x).logits)

    assert agreed(3.0) < agreed(0.0) - 0.02


@pytest.mark.parametrize("project", [False, True])
def test_inputs_stay_within_the_bounds_of_real_ones_if_asked(project: bool) -> None:
    f, data = toy_model(), skewed()
    batches = drawn(replace(QUICK, project=project), f, data, context(f, data))
    assert bool(all(b.x.abs().max() <= 1 for b in batches)) == project


def test_targets_are_the_global_model_s_logits_for_the_final_inputs() -> None:
    f, data = toy_model(), skewed()
    ctx = context(f, data, previous=toy_model(seed=1).weights())
    for batch in drawn(QUICK, f, data, ctx):
        torch.testing.assert_close(batch.z, f(ctx.sent.w, batch.x).logits)
        assert not batch.x.requires_grad


def test_each_local_batch_has_a_full_one_of_generated_inputs_and_all_take_turns() -> None:
    f, data = toy_model(), skewed()
    ctx = context(f, data)._replace(plan=LocalPlan(3, 4))
    found, plain = drawn(QUICK, f, data, ctx), list(ctx.plan.batches(data, Stream(0)))
    assert [len(b.local.y) for b in found] == [4, 2, 4, 2, 4, 2]
    for ours, theirs in zip(found, plain, strict=True):
        assert torch.equal(ours.local.x, theirs.x)
    assert [len(b.x) for b in found] == [4, 4, 3, 4, 4, 3]  # 11 inputs of the 12 asked for
    seen = torch.cat([b.x for b in found]).flatten(1)
    first, again = ([tuple(x) for x in turn.tolist()] for turn in (seen[:11], seen[11:]))
    assert len(set(first)) == 11
    assert set(first) == set(again)
    assert first != again


def test_generated_inputs_are_drawn_again_after_the_last() -> None:
    order: Iterator[Tensor] = shuffled(5, 2, Stream(0).generator())
    turns = [torch.cat(list(itertools.islice(order, 3))) for _ in range(2)]
    assert [turn.sort().values.tolist() for turn in turns] == [[0, 1, 2, 3, 4]] * 2
    assert turns[0].tolist() != turns[1].tolist()


@pytest.mark.parametrize(("t", "first_round", "generates"), [(1, 2, 0), (2, 2, 1), (3, 2, 1)])
def test_generation_starts_in_its_first_round(t: int, first_round: int, generates: bool) -> None:
    f, data = toy_model(), skewed()
    batches = drawn(replace(QUICK, first_round=first_round), f, data, context(f, data, t=t))
    assert all(isinstance(b, ComplementedBatch) == generates for b in batches)


@pytest.mark.parametrize(("total", "first"), [(1, 1), (10, 7), (40, 28), (71, 50), (200, 50)])
def test_generation_starts_after_seven_tenths_of_the_rounds_and_at_most_50(
    total: int, first: int
) -> None:
    f, data = toy_model(), skewed()
    for t in (first - 1, first):
        ctx = context(f, data)._replace(round=Round(t, total, 2, 20))
        batches = drawn(FedCOG(images=12, steps=1), f, data, ctx)
        assert all(isinstance(b, ComplementedBatch) == (t == first) for b in batches)


def test_a_client_that_lacks_no_rows_generates_nothing() -> None:
    f, data = toy_model(), toy_shard(9)
    batches = drawn(QUICK, f, data, context(f, data))
    assert all(isinstance(b, Batch) for b in batches)


def test_fewer_inputs_than_classes_that_lack_rows_are_none() -> None:
    f, data = toy_model(), skewed()
    batches = drawn(replace(QUICK, images=1), f, data, context(f, data))
    assert all(isinstance(b, Batch) for b in batches)
    assert QUICK.loss(f, f.weights(), batches[0], context(f, data)).isfinite()


# federations


def test_a_client_remembers_the_model_that_it_trained_last() -> None:
    federation = Federation(QUICK)
    last = federation.play(federation.start(2))[-1]
    assert torch.equal(QUICK.memory(last.sent.w).w.flat, last.sent.w.flat)
    for k, reply in zip(last.clients, last.replies, strict=True):
        remembered = federation.cohort.memories[k].algorithm.w
        assert torch.equal(remembered.flat, reply.inspected.w.flat)
        assert remembered.flat.data_ptr() != reply.inspected.w.flat.data_ptr()


def test_rounds_before_the_first_are_fedavg_to_the_bit_and_later_ones_are_not() -> None:
    ours = Federation(replace(QUICK, first_round=3))
    theirs = Federation(FedCOG(first_round=1000))
    pairs = zip(ours.play(ours.start(3)), theirs.play(theirs.start(3)), strict=True)
    equal = [torch.equal(mine.server.w.flat, plain.server.w.flat) for mine, plain in pairs]
    assert equal == [True, True, False]


def test_stacked_clients_that_generate_are_single_ones_but_for_rounding() -> None:
    """One class, two, and all, of which the last generates nothing."""
    ends = []
    for kind in (OneByOne, Stacked):
        learner = Learner(QUICK, toy_model(), LocalPlan(2, 8, lr=0.05))
        cohort: Any = kind(learner, shards(), Stream(0))
        sent = Weights(learner.f.weights())
        replies = list(cohort(sent, [0, 1, 2, 3], Round(1, 2, CLIENTS, 47)))
        replies += list(cohort(sent, [0, 1, 2, 3], Round(2, 2, CLIENTS, 47)))
        ends.append(torch.stack([reply.w.flat for reply in replies]))
    assert ends[0].isfinite().all()
    torch.testing.assert_close(*ends, atol=5e-5, rtol=1e-3)


def test_generation_and_training_are_the_naive_loop() -> None:
    data = parity.digits()
    algorithm = FedCOG(first_round=1, images=20, steps=3, eta=0.05, lam=2.0, tau=2.0)
    f = parity.model(algorithm, data)
    w = f.weights()
    with Stream(3).seeded():
        previous = w + Vector(0.5 * torch.randn_like(w.flat), w.layout)
    plan, rng = replace(parity.PLAN, epochs=1), Stream(0)
    round = Round(1, 3, 4, 40)
    reply, _ = Learner(algorithm, f, plan).train(
        data, Weights(w), ClientMemory(PreviousModel(previous), ()), round, rng
    )
    counts = data.counts.tolist()
    client = naive.Client(parity.forward, parity.double(w), counts, parity.double(previous))
    lacking = [max(counts) - n for n in counts]
    classes = [c for c in range(10) for _ in range(int(20 * lacking[c] / sum(lacking)))]
    generator = rng.at("generated").generator()
    noise = torch.randn(len(classes), 1, 28, 28, generator=generator)
    x = naive.fedcog_inputs(client, noise.double(), classes, 3, 0.05, 2.0)
    logits = parity.forward(client.received, x)[1]
    order = shuffled(len(classes), plan.batch_size, generator)
    batches = [(x.double(), y) for x, y in plan.batches(data, rng)]

    def both(who: naive.Client, v: naive.Tensors, batch: naive.Batch) -> naive.Tensors:
        which = next(order)
        real = sum(counts) / (sum(counts) + sum(lacking))
        return naive.fedcog(who, v, batch, (x[which], logits[which]), real, tau=2.0)

    expected = naive.train(client, both, batches, plan.lr, parity.MOMENTUM, plan.weight_decay)
    assert naive.norm({n: t - client.received[n] for n, t in expected.items()}) > 0.05
    assert parity.difference(reply.w, expected) < 1e-4
