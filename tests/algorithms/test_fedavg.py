import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.optimizers import SGD
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Layout, Vector, Weights, gradient
from fedadb.engine.local import Learner
from tests.conftest import toy_model, toy_shard

ROUND = Round(1, 1, 2, 40)


def reply(n: int, *w: float) -> Reply:
    return Reply(Weights(Vector(torch.tensor(w), Layout(("w",), ((len(w),),)))), torch.tensor(n))


def aggregate(*replies: Reply) -> torch.Tensor:
    return FedAvg().aggregate(Weights(replies[0].w), replies, ROUND).w.flat


def test_the_mean_is_weighted_by_examples() -> None:
    """(1·0 + 3·4) / 4 = 3."""
    assert aggregate(reply(1, 0), reply(3, 4)).item() == 3.0


def test_one_client_is_returned_to_the_bit() -> None:
    only = reply(7, *torch.randn(50).tolist())
    assert torch.equal(aggregate(only), only.w.flat)


def test_equal_replies_average_to_themselves() -> None:
    w = torch.randn(50).tolist()
    mean = aggregate(reply(3, *w), reply(5, *w), reply(9, *w))
    torch.testing.assert_close(mean, torch.tensor(w))


def test_the_mean_lies_between_the_replies_whatever_their_order() -> None:
    replies = [reply(n, *torch.randn(50).tolist()) for n in (3, 5, 9)]
    mean = aggregate(*replies)
    stacked = torch.stack([r.w.flat for r in replies])
    assert (mean >= stacked.min(0).values - 1e-6).all()
    assert (mean <= stacked.max(0).values + 1e-6).all()
    torch.testing.assert_close(mean, aggregate(*replies[::-1]))


def test_one_full_batch_step_is_a_step_on_the_pooled_data() -> None:
    f, whole = toy_model(), toy_shard(rows=24)
    w = f.weights()
    plan = LocalPlan(epochs=1, batch_size=100, lr=0.5, weight_decay=0, optimizer=SGD(momentum=0))
    learner = Learner(FedAvg(), f, plan)
    parts = [torch.arange(6), torch.arange(6, 24)]
    replies = [
        learner.train(
            Shard(whole.examples, rows, 3, whole.transform), Weights(w), None, ROUND, Stream(0)
        )[0]
        for rows in parts
    ]
    federated = FedAvg().aggregate(Weights(w), replies, ROUND).w

    x, y = whole.transform.normalise(whole.examples.x), whole.examples.y
    g = gradient(lambda v: torch.nn.functional.cross_entropy(f(v, x).logits, y), w)
    torch.testing.assert_close(federated.flat, (w - 0.5 * g).flat)
