import pytest
import torch
from torch import Tensor

from fedadb.algorithms.fedexp import FedExP
from fedadb.core.algorithm import Round
from fedadb.core.replies import Reply, average
from fedadb.core.vector import Vector
from tests.algorithms.scalar import close, reply, vector

ROUND = Round(1, 9, 20, 40)


def step(algorithm: FedExP, *replies: Reply, at: Round = ROUND) -> float:
    """The step that the server takes from zero."""
    found = []

    class Watched(FedExP):
        def step(self, moved: Tensor, mean_update: Vector, eps: float) -> Tensor:
            found.append(super().step(moved, mean_update, eps))
            return found[0]

    watched = Watched(algorithm.eps)
    watched.aggregate(watched.init(replies[0].w.zeros()), replies, at)
    return found[0].item()


@pytest.mark.parametrize(("m", "expected"), [(2, 1.0), (4, 2.0), (6, 3.0)])
def test_orthogonal_updates_lengthen_the_step(m: int, expected: float) -> None:
    """Q = 1, ‖mean‖² = 1/m: ½ · m."""
    replies = [reply(5, *torch.eye(m)[k].tolist()) for k in range(m)]
    assert step(FedExP(eps=0), *replies) == pytest.approx(expected)


def test_updates_that_agree_leave_fedavg_to_the_bit() -> None:
    w = torch.randn(50).tolist()
    for replies in ([reply(2, *w), reply(7, *w)], [reply(3, *w)]):
        s = FedExP().init(vector(*torch.randn(50).tolist()))
        after = FedExP().aggregate(s, replies, ROUND)
        assert torch.equal(after.w.flat, average(replies).flat)


def test_a_large_epsilon_is_fedavg_and_none_at_all_is_safe() -> None:
    replies = [reply(5, *torch.eye(6)[k].tolist()) for k in range(6)]
    assert step(FedExP(eps=1e12), *replies) == 1
    assert step(FedExP(eps=0), reply(1, 0, 0), reply(1, 0, 0)) == 1


def test_epsilon_falls_with_the_square_of_the_learning_rate() -> None:
    replies = [reply(5, *torch.eye(6)[k].tolist()) for k in range(6)]
    late = Round(11, 20, 20, 40, lr_factor=0.9**10)
    smaller = [r.with_weights(0.9**10 * r.w) for r in replies]
    early_step = step(FedExP(eps=1e-2), *replies)
    assert step(FedExP(eps=1e-2), *smaller, at=late) == pytest.approx(early_step)
    # 1/12 + 6ε in the denominator: ½ / (1/6 + 6 · 0.01).
    assert early_step == pytest.approx(0.5 / (1 / 6 + 0.06))


def test_the_mean_of_two_iterates_is_deployed() -> None:
    algorithm = FedExP()
    first = algorithm.aggregate(algorithm.init(vector(1)), [reply(1, 3)], Round(1, 20, 20, 40))
    close(first.w.flat, 3)
    close(algorithm.deployed(first).flat, 3)  # as the authors do, w₁ alone after round 1
    second = algorithm.aggregate(first, [reply(1, 5)], Round(2, 20, 20, 40))
    close(algorithm.deployed(second).flat, 4)
    close(FedExP(evaluate_mean=False).deployed(second).flat, 5)
