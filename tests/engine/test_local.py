import math

import pytest
import torch
import torch.nn.functional as F

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Round
from fedadb.core.data import LocalPlan
from fedadb.core.optimizers import SGD, AdamW
from fedadb.core.schedules import Cosine, Exponential
from fedadb.core.stream import Stream
from fedadb.core.vector import Weights
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
