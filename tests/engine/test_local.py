import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Batch, LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.optimizers import SGD, Adam, AdamW, Optimizer
from fedadb.core.schedules import Cosine, Exponential
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.local import Learner
from tests.conftest import toy_model, toy_shard


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 1e-2), (0.0, 0.0), (0.5, 0.0)])
def test_local_training_is_torch_optim_sgd(momentum: float, weight_decay: float) -> None:
    f, data = toy_model(), toy_shard(rows=22)
    optimizer, schedule = SGD(momentum), Exponential(decay=0.5)
    plan = LocalPlan(3, 5, 0.1, weight_decay, optimizer, schedule)
    w = f.weights()
    reply, _ = Learner(FedAvg(), f, plan).train(
        data, Weights(w), None, Round(2, 9, 1, 40, lr_factor=0.5), Stream(4)
    )

    module = f.module
    optimiser = torch.optim.SGD(
        module.parameters(), lr=0.05, momentum=momentum, weight_decay=weight_decay
    )
    for x, y in plan.batches(data, Stream(4)):
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(module(x, "head").logits, y))
        optimiser.step()
    torch.testing.assert_close(reply.w.flat, f.weights().flat, rtol=1e-5, atol=1e-7)
    assert reply.examples.item() == 22


def test_the_plan_chooses_optimiser_and_learning_rate() -> None:
    """Round 2 of 8: half of the warm-up, and the factor of the cosine."""
    f, data = toy_model(), toy_shard(rows=22)
    plan = LocalPlan(3, 5, 0.1, 1e-2, AdamW(), Cosine(), warmup=4)
    w = f.weights()
    reply, _ = Learner(FedAvg(), f, plan).train(
        data, Weights(w), None, Round(2, 8, 1, 40), Stream(4)
    )

    lr = 0.1 * 0.5 * (1 + math.cos(math.pi / 8)) / 2
    module = f.module
    optimiser = torch.optim.AdamW(module.parameters(), lr=lr, weight_decay=1e-2)
    for x, y in plan.batches(data, Stream(4)):
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(module(x, "head").logits, y))
        optimiser.step()
    torch.testing.assert_close(reply.w.flat, f.weights().flat, rtol=1e-5, atol=1e-6)


def test_training_changes_nothing_that_was_sent() -> None:
    f, data = toy_model(), toy_shard()
    w = f.weights()
    before = w.flat.clone()
    learner = Learner(FedAvg(), f, LocalPlan(1, 5))
    first, _ = learner.train(data, Weights(w), None, Round(1, 1, 1, 40), Stream(0))
    second, _ = learner.train(data, Weights(w), None, Round(1, 1, 1, 40), Stream(0))
    assert torch.equal(w.flat, before)
    assert torch.equal(first.w.flat, second.w.flat)  # no momentum is carried over


@dataclass(frozen=True)
class OwnScale(FedAvg):
    """FedAvg whose clients also train three numbers of their own, towards 1."""

    sends_all: bool = False

    def start(self, ctx: Context[Any]) -> Vector:
        return Vector.of({**ctx.sent.w.views(), "own": torch.zeros(3)})

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Any]) -> Tensor:
        model, own = w.split(f.layout)
        return super().loss(f, model, batch, ctx) + 500 * (own["own"] - 1).square().sum()

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[Any]) -> Weights:
        return Weights(w if self.sends_all else w.split(f.layout)[0].clone())


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("optimizer", [SGD(), Adam()])
def test_what_a_client_keeps_does_not_change_a_bit_of_what_it_sends(
    optimizer: Optimizer, clip: float | None
) -> None:
    f, data = toy_model(), toy_shard(rows=22)
    plan = LocalPlan(2, 5, 0.001, 1e-2, optimizer, clip=clip)
    ends = []
    for algorithm in (FedAvg(), OwnScale()):
        learner = Learner(algorithm, f, plan)
        training = learner.begin(data, Weights(f.weights()), None, Round(1, 9, 1, 22), Stream(4))
        while training.batch is not None:
            g = algorithm.gradient(f, training.w, training.batch, training.ctx)
            learner.step(training, g)
            training.batch = next(training.batches, None)
        ends.append((learner.end(training)[0], training.w))
    (plain, _), (ours, w) = ends
    assert torch.equal(ours.w.flat, plain.w.flat)
    assert (w["own"] > 0).all()
    w.flat.zero_()
    assert torch.equal(ours.w.flat, plain.w.flat)  # a copy: nothing of the rest is sent with it


def test_an_example_of_a_reply_has_the_parts_of_a_reply() -> None:
    f, sent = toy_model(), Weights(toy_model().weights())
    example = Learner(OwnScale(), f, LocalPlan()).example_reply(sent, Round(1, 9, 1, 22))
    assert example.w.layout == f.layout


def test_weights_that_the_model_does_not_have_are_not_sent() -> None:
    learner = Learner(OwnScale(sends_all=True), toy_model(), LocalPlan(1, 5, lr=1e-3))
    expected = r"^OwnScale\.upload must return weights of the model alone: w\.split\(f\.layout\) "
    sent = Weights(learner.f.weights())
    with pytest.raises(BadInput, match=expected):
        learner.train(toy_shard(), sent, None, Round(1, 1, 1, 40), Stream(0))
