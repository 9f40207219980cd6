from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.errors import BadInput
from fedadb.core.model import Classifier, Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Layout, Vector, gradient
from tests.conftest import toy_model

DOMAIN = Domain((1, 4, 4), torch.tensor(-1.0), torch.tensor(1.0))


def test_f_is_a_pure_function_of_weights_and_input() -> None:
    f = toy_model()
    w, x = f.weights(), torch.randn(5, 1, 4, 4)
    before = {name: p.clone() for name, p in f.module.named_parameters()}
    out = f(w, x)
    assert out.features.shape == (5, 8)
    assert out.logits.shape == (5, 3)
    assert torch.equal(out.logits, f.module(x, "head").logits)
    assert not torch.equal(out.logits, f(2 * w, x).logits)
    assert all(torch.equal(before[name], p) for name, p in f.module.named_parameters())


def test_heads_share_the_body_and_go_by_name() -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    heads = {"a": nn.Linear(8, 3), "l": nn.Linear(8, 3)}
    f = Model(Classifier(body, heads), DOMAIN, 3)
    w, x = f.weights(), torch.randn(2, 1, 4, 4)
    assert torch.equal(f(w, x).logits, f(w, x, "a").logits)
    assert torch.equal(f(w, x, "a").features, f(w, x, "l").features)
    assert not torch.equal(f(w, x, "a").logits, f(w, x, "l").logits)


def test_the_same_stream_makes_the_same_model() -> None:
    assert torch.equal(toy_model(seed=1).weights().flat, toy_model(seed=1).weights().flat)
    assert not torch.equal(toy_model(seed=1).weights().flat, toy_model(seed=2).weights().flat)


def test_what_is_not_a_pure_function_is_refused() -> None:
    running = nn.BatchNorm1d(8), nn.InstanceNorm1d(2, track_running_stats=True)
    parts = [(part, "running statistics") for part in running] + [(nn.Dropout(0.2), "dropout")]
    for part, reason in parts:
        body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), part)
        with pytest.raises(BadInput, match=reason):
            assemble(body, FedAvg().heads, DOMAIN, 3, Stream(0))
    with pytest.raises(BadInput, match="flatten"):
        assemble(nn.Conv2d(1, 2, 3), FedAvg().heads, DOMAIN, 3, Stream(0))


class Returns(nn.Module):
    """A body whose output is not one row per input."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> object:
        rows = self.layer(x.flatten(1))
        return {"tuple": (rows, rows), "vector": rows[:, 0], "more rows": rows.view(-1, 2)}[
            self.kind
        ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Returns("tuple"), "the body's output is a tuple; it must be a tensor of one row per"),
        (Returns("vector"), r"has shape \(2,\) for a batch of 2; it must be one row per input"),
        (
            Returns("more rows"),
            r"has shape \(8, 2\) for a batch of 2; it must be one row per input",
        ),
        (nn.Linear(5, 8), r"does not take inputs of shape \(1, 4, 4\): mat1 and mat2"),
    ],
)
def test_a_body_gives_one_row_per_input(body: nn.Module, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        assemble(body, FedAvg().heads, DOMAIN, 3, Stream(0))


def test_batch_statistics_are_known() -> None:
    body = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16, track_running_stats=False))
    assert assemble(body, FedAvg().heads, DOMAIN, 3, Stream(0)).batch_statistics
    assert not toy_model().batch_statistics


def test_the_projection_is_onto_the_normalised_pixels() -> None:
    domain = Transform(mean=(0.5, 0.2), std=(0.5, 0.1)).domain((2, 1, 1))
    torch.testing.assert_close(domain.low.flatten(), torch.tensor([-1.0, -2.0]))
    torch.testing.assert_close(domain.high.flatten(), torch.tensor([1.0, 8.0]))
    x = torch.randn(50, 2, 1, 1) * 9
    once = domain.project(x)
    assert torch.equal(once, domain.project(once))
    y = torch.randn(50, 2, 1, 1) * 9
    gap = (once - domain.project(y)).flatten(1).norm(dim=1)
    assert (gap <= (x - y).flatten(1).norm(dim=1)).all()
    free = Domain.unbounded((2, 1, 1))
    assert torch.equal(free.project(x), x)


def test_frozen_parameters_are_constants() -> None:
    linear = nn.Linear(16, 8)
    linear.bias.requires_grad_(False)
    body = nn.Sequential(nn.Flatten(), linear)
    f = assemble(body, FedAvg().heads, DOMAIN, 3, Stream(0))
    assert "body.1.bias" not in f.layout.names
    assert list(f.constants()) == ["body.1.bias"]
    x = torch.zeros(1, 1, 4, 4)
    assert torch.equal(f(0 * f.weights(), x).features, linear.bias[None])


def test_bfloat16_is_near_and_gives_float32() -> None:
    f = toy_model()
    low = replace(f, precision="bfloat16")
    x = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    exact, near = f(f.weights(), x), low(f.weights(), x)
    assert near.logits.dtype == near.features.dtype == torch.float32
    torch.testing.assert_close(near.logits, exact.logits, atol=0.05, rtol=0.05)
    assert not torch.equal(near.logits, exact.logits)
    g = gradient(lambda v: low(v, x).logits.square().mean(), f.weights())
    assert g.flat.dtype == torch.float32
    assert g.flat.isfinite().all()


@dataclass(frozen=True)
class Negated:
    """A fast body that notes its inputs, and negates the features."""

    body: nn.Module
    layout: Layout
    seen: list[Tensor]

    @property
    def size(self) -> int:
        return sum(self.layout.sizes)

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        self.seen.append(x)
        features: Tensor = functional_call(self.body, Vector(weights, self.layout).views(), (x,))
        return -features


def with_fast_body(f: Model) -> tuple[Model, list[Tensor]]:
    body, seen = f.module.body, list[Tensor]()
    layout = Layout.of(dict(body.named_parameters()))
    return replace(f, fast_body=Negated(body, layout, seen)), seen


def test_a_fast_body_computes_the_features() -> None:
    f, seen = with_fast_body(toy_model())
    w, x = f.weights(), torch.rand(5, 1, 4, 4)
    output, plain = f(w, x), replace(f, fast_body=None)(w, x)
    assert torch.equal(output.features, -plain.features)
    head = w["heads.head.weight"], w["heads.head.bias"]
    assert torch.equal(output.logits, nn.functional.linear(output.features, *head))
    assert len(seen) == 1


def test_a_fast_body_computes_several_batches_at_once() -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    f, seen = with_fast_body(assemble(body, FedADB().heads, DOMAIN, 3, Stream(0)))
    w, x, y = f.weights(), torch.rand(5, 1, 4, 4), torch.rand(3, 1, 4, 4)
    for found, expected in zip(
        f.branches(w, (x, "L"), (y, "A")), (f(w, x, "L"), f(w, y, "A")), strict=True
    ):
        torch.testing.assert_close(found, expected)
    assert [len(batch) for batch in seen] == [8, 5, 3]
    plain = replace(f, fast_body=None)
    alone = plain(w, y, "A")
    assert torch.equal(plain.branches(w, (x, "L"), (y, "A"))[1].logits, alone.logits)


def test_torch_computes_what_a_fast_body_does_not() -> None:
    """Other types, devices and shapes, bfloat16, vmap and forward-mode derivatives."""
    f, seen = with_fast_body(toy_model())
    w, x = f.weights(), torch.rand(5, 1, 4, 4)
    f(Vector(w.flat.double(), w.layout), x.double())
    replace(f, precision="bfloat16")(w, x)
    f(w, x.reshape(5, 1, 2, 8))
    f(Vector(w.flat.to("meta"), w.layout), x.to("meta"))
    torch.vmap(lambda one: f(w, one[None]).logits)(x)
    torch.func.grad(lambda v: f(v, x).logits.sum())(w)
    with forward_ad.dual_level():
        f(w, x)
    assert not seen


def test_torch_computes_heads_that_share_a_weight() -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    heads = {"a": nn.Linear(8, 3), "l": nn.Linear(8, 3)}
    heads["l"].weight = heads["a"].weight
    f, seen = with_fast_body(Model(Classifier(body, heads), DOMAIN, 3))
    f(f.weights(), torch.rand(5, 1, 4, 4), "l")
    assert not seen
