"""Section 4 of the paper, number by number."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedadb.algorithms.fedadb import (
    Anchors,
    BalancedBatch,
    DualBatch,
    FedADB,
    FedADBBroadcast,
    missing_rate,
)
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Classifier, Domain, Model, assemble
from fedadb.core.optimizers import SGD
from fedadb.core.packing import pack, unpack
from fedadb.core.replies import Reply
from fedadb.core.schedules import Constant
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Vector, Weights, gradient
from fedadb.engine.local import Learner
from fedadb.experiment.config import Experiment
from fedadb.kernels.body import fast_body
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18
from tests.conftest import toy_shard

CLASSES = 4
DOMAIN = Domain((1, 4, 4), torch.tensor(-1.0), torch.tensor(1.0))
PLAN = LocalPlan(epochs=2, batch_size=10, lr=0.1, weight_decay=1e-3)


def model(*middle: nn.Module, classes: int = CLASSES) -> Model:
    rng = Stream(3)
    with rng.at("body").seeded():
        body = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), *middle, nn.ReLU())
    return assemble(body, FedADB().heads, DOMAIN, classes, rng)


def shard(rows: int = 24, held: int = 2) -> Shard:
    """A client with `held` of the four classes."""
    data = toy_shard(rows, classes=held)
    return replace(data, classes=CLASSES)


def trained(f: Model) -> Vector:
    """Weights that tell the four classes apart."""
    learner = Learner(FedAvg(), f, LocalPlan(30, 8, lr=0.1))
    return learner.train(
        toy_shard(48, CLASSES), Weights(f.weights()), None, Round(1, 1, 1, 40), Stream(0)
    )[0].w


def context(sent: FedADBBroadcast, data: Shard) -> Context[FedADBBroadcast]:
    return context_of(sent, data.counts, t=3, total=10)


def context_of(
    sent: FedADBBroadcast, counts: Tensor, t: int, total: int
) -> Context[FedADBBroadcast]:
    return Context(sent, (), counts, Round(t, total, 5, 40), PLAN, torch.tensor(6))


# β and γ


@pytest.mark.parametrize(
    ("t", "total", "gamma", "tau", "beta"),
    [
        (25, 100, 0.5, 1.0, 0.5),
        (50, 100, 0.8, 0.9, 0.607097),
        (7, 100, 0.0, 0.9, 1.0),
        (7, 100, 0.5, 0.0, 1.0),
        (100, 100, 0.7, 0.9, 1.0),
        (1, 1000, 0.58, 1.0, 0.018197),
        (10, 1000, 0.58, 1.0, 0.069183),
        (100, 1000, 0.58, 1.0, 0.263027),
        (500, 1000, 0.58, 1.0, 0.668964),
    ],
)
def test_beta(t: int, total: int, gamma: float, tau: float, beta: float) -> None:
    w = model().weights()
    sent = FedADBBroadcast(w, Anchors(*torch.zeros(3, 0)), torch.tensor(tau))
    counts = torch.ones(100)
    counts[: round(100 * gamma)] = 0
    found = FedADB().local_weight(context_of(sent, counts, t, total))
    assert found.item() == pytest.approx(beta, abs=1e-6)
    assert t / total - 1e-6 <= found.item() <= 1


def test_beta_falls_with_gamma_and_tau_and_rises_with_t() -> None:
    w = model().weights()

    def beta(t: int, missing: int, tau: float) -> float:
        sent = FedADBBroadcast(w, Anchors(*torch.zeros(3, 0)), torch.tensor(tau))
        counts = torch.tensor([0] * missing + [1] * (10 - missing))
        return FedADB().local_weight(context_of(sent, counts, t, 10)).item()

    assert beta(3, 2, 0.9) > beta(3, 5, 0.9) > beta(3, 5, 0.99)
    assert beta(4, 5, 0.9) > beta(3, 5, 0.9)


def test_gamma_is_the_share_of_classes_without_rows() -> None:
    assert missing_rate(torch.tensor([5, 0, 3, 0])).item() == 0.5


# class anchor generation


def test_cag_by_hand() -> None:
    """Logits = x, two classes, c = 0, η = 1, λ = 0.1, from x = 0.

    x₁ = −(softmax(0) − e₀) = (½, −½); x₂ = x₁ − (softmax(x₁) − e₀) − 0.2 x₁, and so on.
    """
    head = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
    wide = Domain((2,), torch.tensor(-1e9), torch.tensor(1e9))
    f = Model(Classifier(nn.Identity(), {"A": head}), wide, 2)
    expected = [(0.5, 0.731059), (0.668941, 0.792142), (0.743012, 0.815481)]
    for steps, (value, confidence) in enumerate(expected, start=1):
        anchors = FedADB(eta=1.0, lam=0.1, steps=steps).optimise(
            f, f.weights(), torch.zeros(1, 2), torch.tensor([0])
        )
        torch.testing.assert_close(anchors.x, torch.tensor([[value, -value]]), atol=1e-6, rtol=0)
        assert anchors.confidence.item() == pytest.approx(confidence, abs=1e-6)


def test_without_steps_anchors_are_the_noise() -> None:
    f = model()
    sent = FedADB(steps=0, sigma=0.3).broadcast(Weights(f.weights()), f, Stream(5))
    noise = 0.3 * torch.randn(CLASSES, 1, 4, 4, generator=Stream(5).generator())
    assert torch.equal(sent.anchors.x, noise)


def test_a_strong_regulariser_shrinks_the_anchors() -> None:
    f = model()
    x, c = torch.randn(CLASSES, 1, 4, 4) / 3, torch.arange(CLASSES)
    lengths = [
        FedADB(lam=100.0, eta=1e-4, steps=steps).optimise(f, f.weights(), x, c).x.norm().item()
        for steps in (0, 1, 5, 20)
    ]
    assert lengths == sorted(lengths, reverse=True)


def test_anchors_end_inside_the_valid_inputs() -> None:
    f = model()
    sent = FedADB(sigma=9.0, eta=20.0).broadcast(Weights(f.weights()), f, Stream(0))
    assert sent.anchors.x.abs().max() <= 1


def test_small_steps_never_raise_the_objective() -> None:
    f = model()
    w = trained(f)
    x, c = torch.rand(CLASSES, 1, 4, 4) - 0.5, torch.arange(CLASSES)

    def objective(x: Tensor) -> float:
        nll = F.cross_entropy(f(w, x, "A").logits, c, reduction="sum")
        return float(nll + 1e-4 * x.square().sum())

    values = [
        objective(FedADB(eta=1e-3, lam=1e-4, steps=steps).optimise(f, w, x, c).x)
        for steps in range(0, 40, 4)
    ]
    assert values == sorted(values, reverse=True)


def test_generation_raises_confidence_and_tau_is_its_mean() -> None:
    f = model()
    s = Weights(trained(f))
    before, after = (FedADB(steps=n).broadcast(s, f, Stream(1)) for n in (0, 100))
    assert 0 < before.tau < after.tau <= 1
    assert after.tau > 0.9
    assert after.tau.item() == pytest.approx(after.anchors.confidence.mean().item())
    seen = f(s.w, after.anchors.x, "A").logits.softmax(1)
    torch.testing.assert_close(after.anchors.confidence, seen[torch.arange(4), after.anchors.c])


def test_order_of_anchors_does_not_matter_without_batch_statistics() -> None:
    f = model()
    x, c = torch.randn(CLASSES, 1, 4, 4), torch.arange(CLASSES)
    order = torch.tensor([2, 0, 3, 1])
    once = FedADB().optimise(f, f.weights(), x, c)
    again = FedADB().optimise(f, f.weights(), x[order], c[order])
    torch.testing.assert_close(once.x[order], again.x)


def test_generation_changes_nothing_but_the_anchors() -> None:
    f = model(nn.BatchNorm1d(12, track_running_stats=False))
    w = f.weights()
    state = {name: p.clone() for name, p in f.module.state_dict().items()}
    flags = [(p.requires_grad, p.grad) for p in f.module.parameters()]
    modes = [m.training for m in f.module.modules()]
    before, numbers = w.flat.clone(), torch.get_rng_state()
    sent = FedADB(anchors_per_class=3).broadcast(Weights(w), f, Stream(0))
    assert torch.equal(w.flat, before)
    assert not w.flat.requires_grad
    assert all(torch.equal(p, state[name]) for name, p in f.module.state_dict().items())
    assert [(p.requires_grad, p.grad) for p in f.module.parameters()] == flags
    assert [m.training for m in f.module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), numbers)
    assert sent.anchors.c.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert not sent.anchors.x.requires_grad
    assert not sent.tau.requires_grad


def test_each_round_starts_from_noise_of_its_own() -> None:
    f = model()
    s = Weights(f.weights())
    first, same, other = (FedADB().broadcast(s, f, Stream(0).at(t)) for t in (1, 1, 2))
    assert torch.equal(first.anchors.x, same.anchors.x)
    assert not torch.equal(first.anchors.x, other.anchors.x)


# dual-branch training


def batches(algorithm: FedADB, f: Model, sent: FedADBBroadcast, data: Shard) -> list[DualBatch]:
    return list(algorithm.batches(f, data, context(sent, data), Stream(7)))


@pytest.mark.parametrize("anchors_for", ["all", "missing"])
@pytest.mark.parametrize("middle", [(), (nn.BatchNorm1d(12, track_running_stats=False),)])
def test_mixed_batches_are_balanced_and_as_large_as_the_local_ones(
    anchors_for: str, middle: tuple[nn.Module, ...]
) -> None:
    f, data = model(*middle), shard(rows=24)
    algorithm = FedADB(anchors_per_class=2, anchors_for=anchors_for)  # type: ignore[arg-type]
    sent = algorithm.broadcast(Weights(f.weights()), f, Stream(0))
    found = batches(algorithm, f, sent, data)
    assert [len(b.local.y) for b in found] == [10, 10, 4] * 2
    for mixed, local in found:
        members = (mixed.weight * len(local.y)).round()
        counts = torch.zeros(CLASSES).scatter_add(0, mixed.y, members)
        assert counts.sum() == len(local.y)
        assert counts.max() - counts.min() <= 1
        assert mixed.weight.sum().item() == pytest.approx(1)
        assert not (mixed.anchor & (mixed.y < 2)).any() or anchors_for == "all"
        assert mixed.anchor[mixed.y >= 2].all()


def test_without_anchors_only_the_classes_at_hand_are_balanced() -> None:
    f, data = model(), shard()
    algorithm = FedADB(generate=False)
    sent = algorithm.broadcast(Weights(f.weights()), f, Stream(0))
    assert sent.tau.item() == 1
    assert len(sent.anchors.c) == 0
    for mixed, _ in batches(algorithm, f, sent, data):
        assert set(mixed.y.tolist()) == {0, 1}


def test_a_longer_epoch_shows_every_class_as_often_as_the_largest() -> None:
    """15 rows of class 0, 9 of class 1: an epoch of the global branch has 4 · 15 members."""
    f, data = model(), shard(rows=24)
    y = (torch.arange(24) >= 15).long()
    data = replace(data, examples=data.examples._replace(y=y))
    algorithm = FedADB(balanced_epoch="largest")
    sent = algorithm.broadcast(Weights(f.weights()), f, Stream(0))
    found = batches(algorithm, f, sent, data)
    assert len(found) == PLAN.epochs * 6
    assert [len(b.local.y) for b in found] == [10, 10, 4] * 4  # the local branch goes on as well
    seen = sum(
        torch.zeros(CLASSES).scatter_add(0, b.balanced.y, 10 * b.balanced.weight) for b in found
    )
    assert isinstance(seen, Tensor)
    assert (seen - PLAN.epochs * 15).abs().max() <= len(found) / 2
    local = torch.cat([b.local.x for b in found[:6]])
    theirs = torch.cat([b.x for b in PLAN.batches(data, Stream(7))])
    assert torch.equal(local, theirs)


def test_local_batches_are_those_of_fedavg() -> None:
    f, data = model(), shard()
    sent = FedADB().broadcast(Weights(f.weights()), f, Stream(0))
    for ours, theirs in zip(
        batches(FedADB(), f, sent, data), PLAN.batches(data, Stream(7)), strict=True
    ):
        assert torch.equal(ours.local.x, theirs.x)


class Plain(FedADB):
    """Every copy of an anchor as a row of its own."""

    def batches(
        self, f: Model, data: Shard, ctx: Context[FedADBBroadcast], rng: Stream
    ) -> Iterator[DualBatch]:
        statistics = model(nn.BatchNorm1d(12, track_running_stats=False))
        return super().batches(statistics, data, ctx, rng)


@pytest.mark.parametrize("anchor_weight", ["one", "confidence"])
@pytest.mark.parametrize("per_class", [1, 2])
def test_one_weighted_anchor_has_the_gradient_of_its_copies(
    anchor_weight: str, per_class: int
) -> None:
    f, data = model(), shard(rows=24)
    w = trained(f)
    cheap = FedADB(anchors_per_class=per_class, anchor_weight=anchor_weight, steps=5)  # type: ignore[arg-type]
    plain = Plain(anchors_per_class=per_class, anchor_weight=anchor_weight, steps=5)  # type: ignore[arg-type]
    sent = cheap.broadcast(Weights(w), f, Stream(0))
    fewer = []
    for few, many in zip(batches(cheap, f, sent, data), batches(plain, f, sent, data), strict=True):
        assert len(few.balanced.y) <= len(many.balanced.y) == len(many.local.y)
        ctx = context(sent, data)
        ours, theirs = (a.gradient(f, w, b, ctx).flat for a, b in ((cheap, few), (plain, many)))
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
        fewer.append(len(few.balanced.y) < len(many.balanced.y))
    assert any(fewer)


def test_each_head_learns_from_its_own_batch_and_the_body_from_both() -> None:
    f, data = model(), shard()
    w = f.weights()
    algorithm = FedADB(beta=0.3)
    sent = algorithm.broadcast(Weights(w), f, Stream(0))
    one, two = batches(algorithm, f, sent, data)[:2]
    ctx = context(sent, data)

    def parts(batch: DualBatch) -> dict[str, Tensor]:
        return algorithm.gradient(f, w, batch, ctx).views()

    crossed = DualBatch(one.balanced, two.local)
    assert torch.equal(parts(one)["heads.A.weight"], parts(crossed)["heads.A.weight"])
    assert not torch.equal(parts(one)["body.1.weight"], parts(crossed)["body.1.weight"])

    def branch(head: str, x: Tensor, y: Tensor, weight: Tensor) -> Vector:
        def loss(v: Vector) -> Tensor:
            return weight @ F.cross_entropy(f(v, x, head).logits, y, reduction="none")

        return gradient(loss, w)

    n = len(one.local.y)
    agb = branch("A", one.balanced.x, one.balanced.y, one.balanced.weight)
    lcb = branch("L", one.local.x, one.local.y, torch.full((n,), 1 / n))
    torch.testing.assert_close(algorithm.gradient(f, w, one, ctx).flat, (agb + 0.3 * lcb).flat)
    both = torch.cat([one.balanced.x, one.local.x])  # without batch statistics one pass would do

    def together(v: Vector) -> Tensor:
        a, b = (f(v, both, head).logits for head in "AL")
        split = len(one.balanced.y)
        risk = one.balanced.weight @ F.cross_entropy(a[:split], one.balanced.y, reduction="none")
        return risk + 0.3 * F.cross_entropy(b[split:], one.local.y)

    torch.testing.assert_close(algorithm.gradient(f, w, one, ctx).flat, gradient(together, w).flat)
    assert agb["heads.L.weight"].abs().max() == 0
    assert lcb["heads.A.weight"].abs().max() == 0


@pytest.mark.parametrize("off", [{"beta": 0.0}, {"calibrate": False}])
def test_without_the_local_branch_its_head_only_decays(off: dict[str, object]) -> None:
    f, data = model(), shard()
    w = f.weights()
    plan = LocalPlan(1, 100, 0.1, 0.5, SGD(momentum=0), Constant())
    algorithm = FedADB(**off)  # type: ignore[arg-type]
    sent = algorithm.broadcast(Weights(w), f, Stream(0))
    reply, _ = Learner(algorithm, f, plan).train(data, sent, None, Round(3, 9, 1, 40), Stream(0))
    torch.testing.assert_close(reply.w["heads.L.weight"], 0.95 * w["heads.L.weight"])
    assert not torch.allclose(reply.w["heads.A.weight"], 0.95 * w["heads.A.weight"])


def as_fedavg(f: Model, w: Vector, head: str) -> tuple[Model, Vector]:
    """The body with one of the two heads, and its weights."""
    single = Model(
        Classifier(f.module.body, {"head": f.module.heads[head]}),
        f.domain,
        f.classes,
        fast_body=f.fast_body,
    )
    parts = {name: w[name.replace("heads.head", f"heads.{head}")] for name in single.layout.names}
    return single, Vector.of(parts)


@pytest.mark.parametrize("middle", [(), (nn.BatchNorm1d(12, track_running_stats=False),)])
def test_with_anchors_and_local_branch_off_a_uniform_client_does_fedavg(
    middle: tuple[nn.Module, ...],
) -> None:
    """One full batch of a class-uniform client: the balanced batch is the whole set."""
    f, data = model(*middle), toy_shard(24, CLASSES)
    w = f.weights()
    plan = LocalPlan(epochs=3, batch_size=24, lr=0.1)
    algorithm = FedADB(generate=False, calibrate=False)
    sent = algorithm.broadcast(Weights(w), f, Stream(0))
    ours, _ = Learner(algorithm, f, plan).train(data, sent, None, Round(1, 1, 1, 40), Stream(0))
    single, start = as_fedavg(f, w, "A")
    theirs, _ = Learner(FedAvg(), single, plan).train(
        data, Weights(start), None, Round(1, 1, 1, 40), Stream(0)
    )
    for name in single.layout.names:
        mine = ours.w[name.replace("heads.head", "heads.A")]
        torch.testing.assert_close(mine, theirs.w[name], atol=1e-6, rtol=1e-5)


class LocalOnly(FedADB):
    """The global branch counts for nothing."""

    def batches(
        self, f: Model, data: Shard, ctx: Context[FedADBBroadcast], rng: Stream
    ) -> Iterator[DualBatch]:
        for mixed, local in super().batches(f, data, ctx, rng):
            yield DualBatch(mixed._replace(weight=0 * mixed.weight), local)


@pytest.mark.usefixtures("needs_kernels")
@pytest.mark.parametrize("anchors", [1, 6, 23])
def test_in_one_pass_the_local_branch_has_fedavg_s_gradient_to_the_bit(anchors: int) -> None:
    """Our own kernels compute both branches at once."""
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 12))
    f = assemble(body, FedADB().heads, DOMAIN, CLASSES, Stream(0))
    f = replace(f, fast_body=fast_body(body, DOMAIN.shape))
    w = f.weights()
    local = shard().batch(torch.arange(10), torch.Generator())
    x = torch.randn(anchors, 1, 4, 4)
    mixed = BalancedBatch(x, torch.zeros(anchors).long(), torch.zeros(anchors), x[:, 0, 0, 0] > 0)
    sent = FedADB(generate=False).broadcast(Weights(w), f, Stream(0))
    ctx = Context(sent, (), torch.ones(CLASSES), Round(1, 1, 1, 40), PLAN, torch.tensor(1))
    ours = FedADB(beta=1.0).gradient(f, w, DualBatch(mixed, local), ctx)
    single, start = as_fedavg(f, w, "L")
    theirs = gradient(lambda v: F.cross_entropy(single(v, local.x).logits, local.y), start)
    for name in single.layout.names:
        assert torch.equal(ours[name.replace("heads.head", "heads.L")], theirs[name])


def test_with_the_global_branch_off_the_local_one_is_fedavg_to_the_bit() -> None:
    # A product's rounding may depend on where its numbers lie in a cache line. With 15 features,
    # head A takes four lines of 64 bytes, so L lies in them as the other model's only head does.
    body = nn.Sequential(nn.Flatten(), nn.Linear(16, 15), nn.ReLU())
    f, data = assemble(body, FedADB().heads, DOMAIN, CLASSES, Stream(3)), shard()
    assert sum(p.numel() for p in f.module.heads["A"].parameters()) * 4 == 4 * 64
    w = f.weights()
    algorithm = LocalOnly(beta=1.0)
    sent = algorithm.broadcast(Weights(w), f, Stream(0))
    ours, _ = Learner(algorithm, f, PLAN).train(data, sent, None, Round(1, 1, 1, 40), Stream(0))
    single, start = as_fedavg(f, w, "L")
    theirs, _ = Learner(FedAvg(), single, PLAN).train(
        data, Weights(start), None, Round(1, 1, 1, 40), Stream(0)
    )
    for name in single.layout.names:
        assert torch.equal(ours.w[name.replace("heads.head", "heads.L")], theirs.w[name])
    assert not torch.equal(ours.w["heads.A.weight"], w["heads.A.weight"])
    plan = LocalPlan(1, 100, 0.1, 0.5, SGD(momentum=0), Constant())
    once, _ = Learner(algorithm, f, plan).train(data, sent, None, Round(1, 1, 1, 40), Stream(0))
    torch.testing.assert_close(once.w["heads.A.weight"], 0.95 * w["heads.A.weight"])


def test_a_client_cannot_change_what_was_sent() -> None:
    f, data = model(), shard()
    sent = FedADB(steps=3).broadcast(Weights(f.weights()), f, Stream(0))
    before = {path: tensor.clone() for path, tensor in pack(sent).items()}
    Learner(FedADB(), f, PLAN).train(data, sent, None, Round(1, 9, 1, 40), Stream(0))
    assert all(torch.equal(tensor, before[path]) for path, tensor in pack(sent).items())
    assert sent.anchors.x.grad is None


def test_all_three_parts_are_averaged() -> None:
    f = model()
    w = f.weights()
    replies = [Reply(Weights(w), torch.tensor(1)), Reply(Weights(3 * w), torch.tensor(3))]
    mean = FedADB().aggregate(Weights(w), replies, Round(1, 9, 4, 40)).w
    torch.testing.assert_close(mean.flat, 2.5 * w.flat)


def test_the_deployed_head_is_the_one_asked_for() -> None:
    f = model()
    s = Weights(f.weights())
    x = torch.randn(5, 1, 4, 4)
    logits = {head: f(s.w, x, head).logits for head in "AL"}
    logits["mean"] = (logits["A"] + logits["L"]) / 2
    before = s.w.flat.clone()
    for deploy, expected in logits.items():
        w = FedADB(deploy=deploy).deployed(s)  # type: ignore[arg-type]
        torch.testing.assert_close(f(w, x).logits, expected)
    assert torch.equal(s.w.flat, before)


def test_confidence_weighs_the_anchors() -> None:
    f, data = model(), shard()
    algorithm = FedADB(anchor_weight="confidence", steps=2)
    sent = algorithm.broadcast(Weights(f.weights()), f, Stream(0))
    for mixed, local in batches(algorithm, f, sent, data):
        copies = (mixed.weight * len(local.y))[mixed.anchor]
        times = copies / sent.anchors.confidence[mixed.y[mixed.anchor]]
        torch.testing.assert_close(times, times.round())
        assert (times >= 1).all()


# what is recorded, kept and sent


def test_what_a_client_measures() -> None:
    f, data = model(), shard()
    s = Weights(trained(f))
    sent = FedADB().broadcast(s, f, Stream(0))
    reply, _ = Learner(FedADB(), f, PLAN).train(data, sent, None, Round(4, 16, 1, 40), Stream(0))
    found = {name: float(value) for name, value in reply.measured.items()}
    assert found["tau"] == pytest.approx(sent.tau.item())
    assert found["gamma"] == 0.5
    assert found["beta"] == pytest.approx(0.25 ** (0.5 * sent.tau.item()))
    missing = sent.anchors.confidence[2:]
    assert found["anchor_confidence"] == pytest.approx(missing.mean().item(), abs=1e-6)
    back = unpack(Reply[Weights], pack(reply), f.layout)
    assert {name: float(value) for name, value in back.measured.items()} == found


def test_only_batch_statistics_change_what_clients_see_of_an_anchor() -> None:
    """A client that misses class 3 alone sees its anchor with the server's confidence, or not."""
    data = shard(held=3)
    gaps = []
    for middle in ((), (nn.BatchNorm1d(12, track_running_stats=False),)):
        f = model(*middle)
        sent = FedADB(steps=3, eta=0.1).broadcast(Weights(f.weights()), f, Stream(0))
        first = batches(FedADB(), f, sent, data)[0]
        seen = FedADB().measure(f, first, context(sent, data))["anchor_confidence"]
        gaps.append(abs(seen - sent.anchors.confidence[3]).item())
    assert gaps[0] < 1e-6
    assert gaps[1] > 1e-3


def test_a_client_that_needs_no_anchor_has_seen_none() -> None:
    f, data = model(), toy_shard(24, CLASSES)
    sent = FedADB().broadcast(Weights(f.weights()), f, Stream(0))
    first = batches(FedADB(), f, sent, data)[0]
    assert math.isnan(FedADB().measure(f, first, context(sent, data))["anchor_confidence"])


@pytest.mark.parametrize(
    ("body", "shape", "classes", "anchors", "head"),
    [
        (LeNet(), (1, 28, 28), 11, 34_496, 85 * 11),
        (LeNet(), (1, 28, 28), 8, 25_088, 85 * 8),
        (ResNet18(), (3, 32, 32), 10, 122_880, 513 * 10),
        (ResNet18(), (3, 28, 28), 9, 84_672, 513 * 9),
    ],
)
def test_the_extra_bytes_are_the_anchors_and_the_second_head(
    body: LeNet | ResNet18, shape: tuple[int, ...], classes: int, anchors: int, head: int
) -> None:
    domain = Transform((0.5,) * shape[0], (0.5,) * shape[0]).domain(shape)
    two, one = (
        assemble(body.body(shape), algorithm.heads, domain, classes, Stream(0))
        for algorithm in (FedADB(), FedAvg())
    )
    sent = FedADB(steps=0).broadcast(Weights(two.weights()), two, Stream(0))
    assert sent.anchors.x.nbytes == anchors
    assert two.weights().flat.numel() - one.weights().flat.numel() == head
    # Beside the pixels an anchor has its class and its confidence; τ is one number more.
    payload = sum(tensor.nbytes for tensor in pack(sent).values())
    plain = sum(tensor.nbytes for tensor in pack(Weights(one.weights())).values())
    assert payload - plain == anchors + 4 * head + classes * (8 + 4) + 4


def test_anchors_travel_as_pixels_if_asked_to() -> None:
    f, rng = model(), Stream(0)
    whole = FedADB(steps=3).broadcast(Weights(f.weights()), f, rng)
    small = FedADB(steps=3, anchor_dtype="uint8").broadcast(Weights(f.weights()), f, rng)
    assert 4 * small.anchors.x.nbytes == whole.anchors.x.nbytes
    back = f.domain.dequantise(small.anchors.x)
    # The box is [−1, 1]: 255 steps of 2/255, and the nearest is half of one away at most.
    assert float((back - whole.anchors.x).abs().max()) <= 1 / 255 + 1e-6
    assert torch.equal(small.anchors.confidence, whole.anchors.confidence)
    data = shard()
    ctx = context(small, data)._replace(plan=LocalPlan(epochs=1, batch_size=8))
    first = next(FedADB(anchor_dtype="uint8").batches(f, data, ctx, rng))
    anchors = first.balanced.x[first.balanced.anchor]
    assert len(anchors)
    assert anchors.dtype == torch.float32
    assert all(any(torch.equal(a, b) for b in back) for a in anchors)


# bad input


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("steps", 0, "algorithm.steps = 0: must be greater than or equal to 1"),
        ("steps", -3, "algorithm.steps = -3"),
        ("anchors_per_class", 0, "algorithm.anchors_per_class = 0"),
        ("sigma", 0, "algorithm.sigma = 0: must be greater than 0"),
        ("eta", -1, "algorithm.eta = -1: must be greater than 0"),
        ("lam", -1e-4, "algorithm.lam = -0.0001: must be greater than or equal to 0"),
        ("beta", 1.5, "algorithm.beta = 1.5: must be less than or equal to 1"),
        ("beta", -0.1, "algorithm.beta = -0.1: must be greater than or equal to 0"),
        ("anchors_for", "some", "algorithm.anchors_for = 'some': must be 'all' or 'missing'"),
        ("deploy", "B", "algorithm.deploy = 'B': must be 'A', 'L' or 'mean'"),
    ],
)
def test_impossible_values_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        Experiment.read({"algorithm": {"name": "fedadb", field: value}})
    assert message in str(caught.value)


def test_a_domain_without_bounds_is_refused() -> None:
    f = replace(model(), domain=Domain.unbounded((1, 4, 4)))
    with pytest.raises(BadInput, match="anchors need bounded inputs"):
        FedADB().broadcast(Weights(f.weights()), f, Stream(0))


def test_anchors_that_are_not_finite_are_refused() -> None:
    f = model()
    with pytest.raises(Fault, match=r"not finite: eta = 1\.0 or sigma = 1e\+38 is too large"):
        FedADB(sigma=1e38).broadcast(Weights(1e30 * f.weights()), f, Stream(0))


def test_kept_anchors_come_with_the_bounds_of_their_pixels() -> None:
    f = model()
    sent = FedADB(steps=1).broadcast(Weights(f.weights()), f, Stream(0))
    kept = FedADB().keep(sent, f)
    assert kept is not None
    assert torch.equal(kept.anchors.x, sent.anchors.x)
    assert torch.equal(kept.low, f.domain.low.flatten())
    assert FedADB(generate=False).keep(sent, f) is None
