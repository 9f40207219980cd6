import torch

from fedadb.algorithms.fedacg import FedACG
from fedadb.core.algorithm import Round
from fedadb.core.replies import Reply
from fedadb.core.vector import Weights
from tests.algorithms.scalar import close, reply, vector


def test_three_rounds_by_hand() -> None:
    """F = (w − a)²/2, a = (2, 4), one step of lr ½ from u: w_k = (u + a_k)/2; λ = ½."""
    algorithm = FedACG(lam=0.5, beta=0.0)
    s = algorithm.init(vector(0))
    expected = [(0, 1.5, 1.5), (2.25, 2.625, 1.125), (3.1875, 3.09375, 0.46875)]
    for t, (ahead, w, m) in enumerate(expected, start=1):
        u = algorithm.broadcast(s, None, None).w  # type: ignore[arg-type]
        close(u.flat, ahead)
        before = s.w
        replies = [Reply(Weights((u + vector(a)) / 2), torch.tensor(5)) for a in (2, 4)]
        s = algorithm.aggregate(s, replies, Round(t, 3, 2, 40))
        close(s.w.flat, w)
        close(s.m.flat, m)
        close((s.w - before).flat, m)


def test_momentum_carries_on_when_nobody_moves() -> None:
    algorithm = FedACG(lam=0.5)
    s = algorithm.init(vector(1))._replace(m=vector(2))
    replies = [Reply(Weights(algorithm.ahead(s)), torch.tensor(1))]
    after = algorithm.aggregate(s, replies, Round(1, 9, 2, 40))
    close(after.m.flat, 1)
    close(after.w.flat, 2)


def test_the_mean_is_weighted_unless_told() -> None:
    replies = [reply(1, 0), reply(3, 4)]
    for weighted, mean in ((True, 3), (False, 2)):
        algorithm = FedACG(weighted=weighted)
        s = algorithm.aggregate(algorithm.init(vector(0)), replies, Round(1, 9, 2, 40))
        close(s.w.flat, mean)
