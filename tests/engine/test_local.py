import pytest
import torch
import torch.nn.functional as F

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Round, Weights
from fedadb.core.data import LocalPlan
from fedadb.core.stream import Stream
from fedadb.engine.local import Learner
from tests.conftest import toy_model, toy_shard


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 1e-2), (0.0, 0.0), (0.5, 0.0)])
def test_local_training_is_torch_optim_sgd(momentum: float, weight_decay: float) -> None:
    f, data = toy_model(), toy_shard(rows=22)
    plan = LocalPlan(3, 5, lr=0.1, lr_decay=0.5, momentum=momentum, weight_decay=weight_decay)
    w = f.weights()
    reply, _ = Learner(FedAvg(), f, plan).train(data, Weights(w), (), Round(2, 9, 1, 40), Stream(4))

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


def test_training_changes_nothing_that_was_sent() -> None:
    f, data = toy_model(), toy_shard()
    w = f.weights()
    before = w.flat.clone()
    learner = Learner(FedAvg(), f, LocalPlan(1, 5))
    first, _ = learner.train(data, Weights(w), (), Round(1, 1, 1, 40), Stream(0))
    second, _ = learner.train(data, Weights(w), (), Round(1, 1, 1, 40), Stream(0))
    assert torch.equal(w.flat, before)
    assert torch.equal(first.w.flat, second.w.flat)  # no momentum is carried over
