"""Changes of FedADB that are tried: what each of them changes, and what it does not."""

import pytest
import torch

from experiments.candidates import (
    AnchoredSoftmax,
    OnePass,
    OwnClasses,
    OwnOnePass,
    SmallerBeta,
    SoftAnchors,
    VacantDistillation,
    shown_share,
)
from fedadb.algorithms.fedadb import FedADB
from fedadb.core.algorithm import Round
from fedadb.core.data import LocalPlan
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.local import Learner
from tests.algorithms.test_fedadb import CLASSES, context, model, shard, trained

CANDIDATES = [
    OnePass(),
    SmallerBeta(),
    SoftAnchors(),
    VacantDistillation(),
    OwnClasses(),
    OwnOnePass(),
    AnchoredSoftmax(),
]


def other_weights(w: Vector) -> Vector:
    return Vector(w.flat + 0.05 * torch.randn(w.flat.shape), w.layout)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.name)
def test_a_round_moves_every_part(candidate: FedADB) -> None:
    f = model()
    w = f.weights()
    sent = candidate.broadcast(Weights(w), f, Stream(0))
    learner = Learner(candidate, f, LocalPlan(epochs=2, batch_size=10, lr=0.02))
    reply, _ = learner.train(shard(), sent, None, Round(5, 10, 4, 40), Stream(1))
    assert reply.w.flat.isfinite().all()
    assert [name for name in f.layout.names if torch.equal(reply.w[name], w[name])] == []


def test_at_the_received_weights_soft_anchors_and_distillation_add_nothing() -> None:
    f, data = model(), shard()
    w = trained(f)
    sent = FedADB().broadcast(Weights(w), f, Stream(0))
    ctx = context(sent, data)
    batch = next(FedADB().batches(f, data, ctx, Stream(7)))
    rows = batch.balanced.weight * ~batch.balanced.anchor
    plain, soft, distilled = (
        one.gradient(f, w, batch, ctx).flat
        for one in (FedADB(), SoftAnchors(), VacantDistillation())
    )
    only_rows = batch._replace(balanced=batch.balanced._replace(weight=rows))
    torch.testing.assert_close(soft, FedADB().gradient(f, w, only_rows, ctx).flat)
    torch.testing.assert_close(distilled, plain)
    elsewhere = other_weights(w)
    # Away from the received weights, soft anchors differ from no anchors, distillation from FedADB.
    for one, without in ((SoftAnchors(), only_rows), (VacantDistillation(), batch)):
        there = one.gradient(f, elsewhere, batch, ctx).flat
        assert not torch.allclose(there, FedADB().gradient(f, elsewhere, without, ctx).flat)


def test_without_their_change_they_are_fedadb() -> None:
    f, data = model(), shard()
    sent = FedADB().broadcast(Weights(f.weights()), f, Stream(0))
    ctx, w = context(sent, data), other_weights(f.weights())
    batch = next(FedADB().batches(f, data, ctx, Stream(7)))
    expected = FedADB().loss(f, w, batch, ctx)
    assert torch.equal(VacantDistillation(distil=0.0).loss(f, w, batch, ctx), expected)
    assert torch.equal(SmallerBeta(scale=1.0).loss(f, w, batch, ctx), expected)
    assert SmallerBeta(scale=0.5).local_weight(ctx) == FedADB().local_weight(ctx) / 2


def test_one_pass_shows_missing_classes_as_a_balanced_batch_does() -> None:
    f, data = model(), shard()
    sent = OnePass(anchors_per_class=2).broadcast(Weights(f.weights()), f, Stream(0))
    ctx = context(sent, data)
    found = list(OnePass(anchors_per_class=2).batches(f, data, ctx, Stream(7)))
    assert [len(b.local.y) for b in found] == [10, 10, 4] * 2
    shown = torch.zeros(CLASSES)
    for b in found[:3]:  # an epoch
        assert b.balanced.weight.sum().item() == pytest.approx(1)
        assert torch.equal(b.balanced.x[: len(b.local.y)], b.local.x)
        shown += torch.zeros(CLASSES).scatter_add(0, b.balanced.y, b.balanced.weight) * len(
            b.local.y
        )
    torch.testing.assert_close(shown / len(data), shown_share(data.counts))
    assert shown_share(torch.tensor([3, 0, 1, 0])).tolist() == [0.375, 0.25, 0.125, 0.25]


def test_rows_leave_the_logits_of_missing_classes_alone() -> None:
    """Without anchors, the head of a missing class has no gradient; with them it has one."""
    f, data = model(), shard()
    w = trained(f)
    sent = FedADB().broadcast(Weights(w), f, Stream(0))
    ctx = context(sent, data)
    missing = data.counts == 0
    assert missing.any()
    for one in (OwnClasses(), OwnOnePass(), AnchoredSoftmax()):
        batch = next(one.batches(f, data, ctx, Stream(7)))
        assert one.gradient(f, w, batch, ctx)["heads.A.weight"][missing].abs().max() > 0
        n = int((~batch.balanced.anchor).sum())
        rows = batch._replace(balanced=type(batch.balanced)(*(part[:n] for part in batch.balanced)))
        assert one.gradient(f, w, rows, ctx)["heads.A.weight"][missing].abs().max() == 0


def test_the_anchored_softmax_sends_no_gradient_of_the_local_branch_to_the_features() -> None:
    f, data = model(), shard()
    w = trained(f)
    sent = FedADB().broadcast(Weights(w), f, Stream(0))
    ctx = context(sent, data)
    batch = next(AnchoredSoftmax().batches(f, data, ctx, Stream(7)))
    with_branch, without = (
        AnchoredSoftmax(beta=beta).gradient(f, w, batch, ctx) for beta in (1.0, 0.0)
    )
    for name in f.layout.names:
        same = torch.equal(with_branch[name], without[name])
        assert same is not name.startswith("heads.L."), name


def test_the_loss_of_the_anchored_softmax_is_that_of_its_formula() -> None:
    """Rows: CE(z + log n_k) and β CE(z_L). Anchors: CE(z) with the weight a / C."""
    f, data = model(), shard()
    w = other_weights(trained(f))
    candidate = AnchoredSoftmax(anchor_share=0.3, beta=0.25)
    sent = candidate.broadcast(Weights(w), f, Stream(0))
    ctx = context(sent, data)
    batch = next(candidate.batches(f, data, ctx, Stream(7)))
    own = data.counts > 0
    expected = torch.tensor(0.0)
    for x, y in zip(batch.local.x, batch.local.y, strict=True):
        z, z_local = f(w, x[None], "A").logits[0], f(w, x[None], "L").logits[0]
        pushed = data.counts * z.exp()
        row = -(pushed[y] / pushed[own].sum()).log() + 0.25 * -z_local.log_softmax(0)[y]
        expected = expected + row / len(batch.local.y)
    for x, c in zip(sent.anchors.x, sent.anchors.c, strict=True):
        if not own[c]:
            z = f(w, x[None], "A").logits[0]
            expected = expected - 0.3 / CLASSES * z.log_softmax(0)[c]
    torch.testing.assert_close(candidate.loss(f, w, batch, ctx), expected)


@pytest.mark.parametrize("candidate", [OnePass(), OwnOnePass()], ids=lambda one: one.name)
def test_the_balanced_softmax_has_the_share_of_each_class(candidate: OnePass) -> None:
    """−log(p_y e^{z_y} / Σ p_c e^{z_c}); anchors of `OwnOnePass` have p = 1."""
    f, data = model(), shard()
    sent = candidate.broadcast(Weights(f.weights()), f, Stream(0))
    ctx = context(sent, data)
    batch = next(candidate.batches(f, data, ctx, Stream(7))).balanced
    z = torch.randn(len(batch.y), CLASSES, generator=torch.Generator().manual_seed(3))
    expected = torch.tensor(0.0)
    for row, y, weight, anchor in zip(z, batch.y, batch.weight, batch.anchor, strict=True):
        p = data.counts / data.counts.sum()
        if isinstance(candidate, OwnOnePass):
            p = torch.ones(CLASSES) if anchor else p
        else:
            of_rows = p * (data.counts > 0).float().mean()
            p = torch.where(data.counts == 0, torch.tensor(1 / CLASSES), of_rows)
        pushed = p * row.exp()
        expected = expected - weight * (pushed[y] / pushed.sum()).log()
    torch.testing.assert_close(candidate.balanced_loss(f, z, batch, ctx), expected)
