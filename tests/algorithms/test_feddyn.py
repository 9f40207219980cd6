from collections.abc import Callable

import pytest
import torch

from fedadb.algorithms.feddyn import FedDyn, FedDynMemory, FedDynState
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import LocalPlan
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.local import Learner
from tests.algorithms.scalar import close, direction, reply, vector
from tests.conftest import toy_model, toy_shard


def context(sent: Vector, g: Vector, n: int = 5) -> Context[Weights, FedDynMemory]:
    round, steps = Round(1, 9, 2, 20), torch.tensor(1)
    return Context(Weights(sent), FedDynMemory(g), torch.tensor([n]), round, LocalPlan(), steps)


def play(rounds: int) -> list[tuple[FedDynState, list[FedDynMemory], list[Vector]]]:
    """f_k = (w − a_k)²/2 with a = (0, 4), α = 1, exact local minimisation, both clients each round.

    The minimum of f_k − g_k w + α/2 (w − w_t)² is at (a_k + g_k + α w_t) / (1 + α).
    """
    algorithm, a = FedDyn(alpha=1.0), (vector(0), vector(4))
    s = algorithm.init(vector(0))
    clients = [algorithm.memory(s.w) for _ in a]
    history = []
    for t in range(1, rounds + 1):
        w = [(a_k + c.g + s.w) / 2 for a_k, c in zip(a, clients, strict=True)]
        clients = [
            algorithm.remember(w_k, Weights(w_k), context(s.w, c.g))
            for w_k, c in zip(w, clients, strict=True)
        ]
        replies = [Reply(Weights(w_k), torch.tensor(5)) for w_k in w]
        s = algorithm.aggregate(s, replies, Round(t, rounds, 2, 40))
        history.append((s, clients, w))
    return history


def test_three_rounds_by_hand() -> None:
    expected = [
        ((0, 2), (0, -2), -1, 2),
        ((1, 2), (1, -2), -0.5, 2),
        ((1.5, 2), (1.5, -2), -0.25, 2),
    ]
    for (s, clients, w), (w_k, g_k, h, end) in zip(play(3), expected, strict=True):
        for found, value in zip(w, w_k, strict=True):
            close(found.flat, value)
        for client, value in zip(clients, g_k, strict=True):
            close(client.g.flat, value)
        close(s.h.flat, h)
        close(s.w.flat, end)


def test_memory_is_the_gradient_at_the_local_minimum_and_h_its_mean() -> None:
    for s, clients, w in play(3):
        for client, w_k, a_k in zip(clients, w, (0, 4), strict=True):
            close(client.g.flat, float(w_k.flat) - a_k)
        close(s.h.flat, sum(float(c.g.flat) for c in clients) / 2)


def test_clients_that_are_not_sampled_count_in_h() -> None:
    s = FedDyn(alpha=0.5).init(vector(1, 1))
    after = FedDyn(alpha=0.5).aggregate(s, [reply(3, 2, 3)], Round(1, 9, 10, 40))
    close(after.h.flat, -0.05, -0.1)
    close(after.w.flat, 2 + 0.1, 3 + 0.2)


def test_at_zero_it_is_fedavg_and_below_zero_nothing() -> None:
    algorithm = FedDyn(alpha=0.0)
    s = algorithm.init(vector(1))
    after = algorithm.aggregate(s, [reply(1, 0), reply(3, 4)], Round(1, 9, 10, 40))
    close(after.w.flat, 3)
    close(after.h.flat, 0)
    trained = vector(5)
    ctx = context(vector(1), vector(0))
    close(algorithm.remember(trained, Weights(trained), ctx).g.flat, 0)


def test_the_official_variant_scales_alpha_and_averages_uniformly() -> None:
    algorithm = FedDyn(alpha=0.1, variant="official")
    # mean n = 10, n_k = 5: α_k = 0.1 · 10 / 5.
    assert float(algorithm.client_alpha(context(vector(0), vector(0), n=5))) == pytest.approx(0.2)
    after = algorithm.aggregate(
        algorithm.init(vector(0)), [reply(1, 0), reply(3, 4)], Round(1, 9, 2, 40)
    )
    close(algorithm.deployed(after).flat, 2)
    close(after.w.flat, 2 + 2)


@pytest.mark.parametrize(
    ("longest", "expected"), [(100.0, -7.0), (1.0, -0.98), (None, -7.0), (7.0, -6.98)]
)
def test_the_official_variant_clips_all_but_the_quadratic_term(
    longest: float | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """∇CE = 3, g = 10, w_t = w = 0.1, α_k = 0.2: 3 − 10 − 0.02, clipped or not, + 0.02."""

    def three(function: Callable[[Vector], object], w: Vector) -> Vector:
        return vector(3)

    monkeypatch.setattr("fedadb.algorithms.feddyn.gradient", three)
    algorithm, ctx = FedDyn(alpha=0.1, variant="official"), context(vector(0.1), vector(10))
    g = direction(algorithm, None, vector(0.1), None, ctx, longest)  # type: ignore[arg-type]
    close(g.flat, expected)


def test_the_reference_clips_the_whole_gradient_if_asked() -> None:
    f, data = toy_model(), toy_shard()
    w = f.weights()
    there, batch = 1.5 * w, next(LocalPlan().batches(data, Stream(0)))
    ctx = context(w, w.zeros())._replace(counts=data.counts)
    free = FedDyn(alpha=5.0).gradient(f, there, batch, ctx)
    assert free.norm() > 1
    bound = direction(FedDyn(alpha=5.0), f, there, batch, ctx, clip=1.0)
    close(bound.flat, *(free / free.norm()).flat.tolist())


def test_only_the_official_variant_clips_by_itself() -> None:
    found = {
        (variant, asked): Learner(FedDyn(variant=variant), toy_model(), LocalPlan(clip=asked)).clip
        for variant in ("reference", "official")
        for asked in ("auto", 3.0, None)
    }
    assert found == {
        ("reference", "auto"): None,
        ("reference", 3.0): 3.0,
        ("reference", None): None,
        ("official", "auto"): 10.0,
        ("official", 3.0): 3.0,
        ("official", None): None,
    }
