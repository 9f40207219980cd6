import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.moon import MOON, contrast
from fedadb.core.algorithm import Context, PreviousModel, Round
from fedadb.core.data import LocalPlan
from fedadb.core.packing import size
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.local import ClientMemory, Learner
from tests.algorithms import test_parity as parity
from tests.algorithms.scalar import close
from tests.conftest import toy_model, toy_shard
from tests.reference import naive
from tests.test_every_algorithm import Federation


def term(z: list[float], z_global: list[float], z_previous: list[float]) -> tuple[Tensor, Tensor]:
    """The contrastive term of one row with τ = 0.5, and its gradient with respect to z."""
    rows = [torch.tensor([h], dtype=torch.float32) for h in (z, z_global, z_previous)]
    at = rows[0].requires_grad_()
    value = contrast(at, rows[1], rows[2], tau=0.5)
    (g,) = torch.autograd.grad(value, at)
    return value.detach(), g


def test_the_term_by_hand() -> None:
    """cos(z, z_g) = 1/√2 and cos(z, z_p) = 0, so it is softplus(−√2) = 0.217622."""
    value, g = term([1, 0], [1, 1], [0, 1])
    close(value, 0.217622)
    close(g, 0, 0.114562)


def test_in_the_first_step_only_the_previous_model_has_a_slope() -> None:
    """At z = z_g, cos(z, z_g) = 1 is a maximum; the other cosine is 1/√2."""
    value, g = term([1, 1], [1, 1], [0, 1])
    close(value, 0.442548)
    close(g, -0.252863, 0.252863)


def test_equal_models_give_ln_2_and_no_gradient() -> None:
    value, g = term([0.3, -2.0, 0.7], [1.1, 0.2, -3.0], [1.1, 0.2, -3.0])
    close(value, math.log(2))
    assert torch.equal(g, torch.zeros_like(g))


@pytest.mark.parametrize("scales", [(7, 1, 1), (1, 0.1, 1), (1, 1, 50)])
def test_the_lengths_of_features_do_not_matter(scales: tuple[float, float, float]) -> None:
    rows = ([1.0, 0.5], [1.0, 1.0], [0.0, 1.0])
    scaled = [[scale * x for x in row] for scale, row in zip(scales, rows, strict=True)]
    torch.testing.assert_close(term(*scaled)[0], term(*rows)[0])


def test_features_that_are_zero_give_a_number() -> None:
    for zero in range(3):
        rows = [[1.0, 0.5], [1.0, 1.0], [0.0, 1.0]]
        rows[zero] = [0.0, 0.0]
        value, g = term(*rows)
        assert value.isfinite()
        assert g.isfinite().all()
    close(term([0, 0], [1, 1], [0, 1])[0], math.log(2))


def test_a_client_s_first_round_is_fedavg_to_the_bit_and_its_second_is_not() -> None:
    """Clients 0, 2 and 3 take part in both rounds: each remembers its own result."""
    ours, theirs = Federation(MOON(mu=5.0)), Federation(FedAvg())
    mine, plain = (one.play(one.start(2), chosen=(0, 1, 2, 3)) for one in (ours, theirs))
    assert torch.equal(mine[0].server.w.flat, plain[0].server.w.flat)
    assert not torch.equal(mine[1].server.w.flat, plain[1].server.w.flat)


def test_a_client_remembers_what_it_trained_and_not_the_mean() -> None:
    federation = Federation(MOON())
    last = federation.play(federation.start(1))[-1]
    for k, note in zip(last.clients, last.replies, strict=True):
        remembered = federation.cohort.memories[k].algorithm.w
        assert torch.equal(remembered.flat, note.inspected.w.flat)
        assert not torch.equal(remembered.flat, last.server.w.flat)


def test_without_the_term_the_other_models_are_not_evaluated() -> None:
    f, data = toy_model(), toy_shard()
    w = f.weights()
    nowhere = Vector(torch.full_like(w.flat, torch.nan), w.layout)
    batch = next(LocalPlan().batches(data, Stream(0)))
    ctx = Context(
        Weights(w),
        PreviousModel(nowhere),
        data.counts,
        Round(1, 9, 2, 20),
        LocalPlan(),
        torch.tensor(1),
    )
    assert MOON(mu=0.0).loss(f, w, batch, ctx).isfinite()
    assert not MOON().loss(f, w, batch, ctx).isfinite()


def test_it_sends_what_fedavg_sends_and_keeps_one_model() -> None:
    federation = Federation(MOON())
    last = federation.play(federation.start(1))[-1]
    weights = size(Weights(last.server.w))
    assert size(last.sent) == weights
    assert last.replies[0].bytes == weights + last.replies[0].inspected.examples.nbytes
    assert size(federation.cohort.memories[last.clients[0]]) == weights


def test_local_training_is_the_naive_loop() -> None:
    data, algorithm = parity.digits(), MOON(mu=2.0, tau=0.3)
    f = parity.model(algorithm, data)
    w = f.weights()
    with Stream(3).seeded():
        previous = w + Vector(0.1 * torch.randn_like(w.flat), w.layout)
    memory = ClientMemory(PreviousModel(previous), ())
    reply, kept = Learner(algorithm, f, parity.PLAN).train(
        data, Weights(w), memory, Round(2, 9, 4, 40), Stream(0)
    )
    client = naive.Client(
        parity.forward, parity.double(w), data.counts.tolist(), parity.double(previous)
    )
    batches = [(x.double(), y) for x, y in parity.PLAN.batches(data, Stream(0))]

    def contrasted(who: naive.Client, v: naive.Tensors, batch: naive.Batch) -> naive.Tensors:
        return naive.moon(who, v, batch, mu=2.0, tau=0.3)

    how = parity.PLAN
    trained = naive.train(client, contrasted, batches, how.lr, parity.MOMENTUM, how.weight_decay)
    plain = naive.train(client, naive.fedavg, batches, how.lr, parity.MOMENTUM, how.weight_decay)
    assert naive.norm({n: t - plain[n] for n, t in trained.items()}) > 0.05
    assert parity.difference(reply.w, trained) < 1e-5
    assert torch.equal(kept.algorithm.w.flat, reply.w.flat)


def test_a_batch_of_one_row_trains() -> None:
    data = replace(toy_shard(), rows=torch.tensor([4]))
    f = toy_model()
    learner = Learner(MOON(), f, LocalPlan(2, 8, lr=0.05))
    reply, _ = learner.train(data, Weights(f.weights()), None, Round(1, 9, 2, 20), Stream(0))
    assert reply.w.flat.isfinite().all()
