"""Each method against a naive loop from its formulas, over local steps on real digits."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedadb.algorithms.fedacg import FedACG
from fedadb.algorithms.fedasam import FedASAM
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddecorr import FedDecorr
from fedadb.algorithms.feddyn import FedDyn, FedDynMemory
from fedadb.algorithms.fedexp import FedExP
from fedadb.algorithms.fedgela import FedGELA
from fedadb.algorithms.fedlc import FedLC
from fedadb.algorithms.fedlmd import FedLMD
from fedadb.algorithms.fedntd import FedNTD
from fedadb.algorithms.fedprox import FedProx
from fedadb.algorithms.fedrs import FedRS
from fedadb.algorithms.fedsol import FedSOL
from fedadb.algorithms.fedvls import FedVLS
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.model import Model, assemble
from fedadb.core.optimizers import SGD
from fedadb.core.schedules import Constant
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.datasets import load
from fedadb.engine.local import ClientMemory, Learner
from tests.reference import naive

MOMENTUM = 0.9
PLAN = LocalPlan(
    epochs=2,
    batch_size=8,
    lr=0.05,
    weight_decay=1e-3,
    optimizer=SGD(MOMENTUM),
    schedule=Constant(),
)
HIDDEN = 6


def digits() -> Shard:
    """36 digits, of 7 of the 10 classes and unevenly many of each."""
    splits = load("digits")
    rows = [
        torch.nonzero(splits.train.y == c).flatten()[:n]
        for c, n in enumerate([12, 8, 6, 4, 3, 2, 1])
    ]
    return Shard(splits.train, torch.cat(rows), 10, splits.transform)


def model(algorithm: Algorithm[Any, Any, Any, Any], data: Shard) -> Model:
    with Stream(1).seeded():
        body = nn.Sequential(nn.Flatten(), nn.Linear(784, HIDDEN), nn.Tanh())
    domain = data.transform.domain((1, 28, 28))
    return assemble(body, algorithm.heads, domain, 10, Stream(2))


def forward(w: naive.Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(x.flatten(1) @ w["body.1.weight"].T + w["body.1.bias"])
    return h, h @ w["heads.head.weight"].T + w["heads.head.bias"]


def double(w: Vector) -> naive.Tensors:
    return {name: tensor.double() for name, tensor in w.views().items()}


def difference(ours: Vector, theirs: naive.Tensors) -> float:
    gap = {n: t - theirs[n] for n, t in double(ours).items()}
    return naive.norm(gap) / naive.norm(theirs)


Gradient = Callable[[naive.Client, naive.Tensors, naive.Batch], naive.Tensors]
CASES: list[tuple[Algorithm[Any, Any, Any, Any], Gradient]] = [
    (FedAvg(), naive.fedavg),
    (FedProx(mu=0.7), partial(naive.fedprox, mu=0.7)),
    (FedACG(beta=0.3), partial(naive.fedacg, beta=0.3)),
    (FedDyn(alpha=0.4), partial(naive.feddyn, alpha=0.4)),
    (FedNTD(beta=0.8, tau=2.0), partial(naive.fedntd, beta=0.8, tau=2.0)),
    (FedLMD(beta=0.8, tau=2.0), partial(naive.fedlmd, beta=0.8, tau=2.0)),
    (FedVLS(lam=0.6, beta=0.2), partial(naive.fedvls, lam=0.6, beta=0.2)),
    (FedDecorr(lam=0.03), partial(naive.feddecorr, lam=0.03)),
    (FedASAM(rho=0.5), partial(naive.fedasam, rho=0.5, eta=0.0, scope="all")),
    (
        FedASAM(rho=0.7, eta=0.2, scope="weights"),
        partial(naive.fedasam, rho=0.7, eta=0.2, scope="weights"),
    ),
    (FedSOL(rho=1.0), partial(naive.fedsol, rho=1.0, adaptive=True)),
    (FedExP(), naive.fedavg),
    (FedLC(tau=0.8), partial(naive.fedlc, tau=0.8, missing="exclude")),
    (FedLC(tau=0.8, missing="one"), partial(naive.fedlc, tau=0.8, missing="one")),
    (FedRS(alpha=0.3), partial(naive.fedrs, alpha=0.3, variant="binary")),
    (FedRS(alpha=0.3, variant="soft"), partial(naive.fedrs, alpha=0.3, variant="soft")),
]


@pytest.mark.parametrize(("algorithm", "reference"), CASES, ids=[str(a) for a, _ in CASES])
def test_local_training_is_the_naive_loop(
    algorithm: Algorithm[Any, Any, Any, Any], reference: Gradient
) -> None:
    data = digits()
    f = model(algorithm, data)
    w = f.weights()
    with Stream(3).seeded():
        g = Vector(0.01 * torch.randn_like(w.flat), w.layout)
    memory = ClientMemory(FedDynMemory(g), ()) if isinstance(algorithm, FedDyn) else None
    reply, remembered = Learner(algorithm, f, PLAN).train(
        data, Weights(w), memory, Round(1, 3, 4, 40), Stream(0)
    )
    client = naive.Client(forward, double(w), data.counts.tolist(), double(g))
    batches = [(x.double(), y) for x, y in PLAN.batches(data, Stream(0))]
    expected = naive.train(client, reference, batches, PLAN.lr, MOMENTUM, PLAN.weight_decay)
    assert naive.norm({n: t - client.received[n] for n, t in expected.items()}) > 0.05
    assert difference(reply.w, expected) < 1e-5
    if isinstance(algorithm, FedDyn):
        moved = {n: client.memory[n] - 0.4 * (expected[n] - client.received[n]) for n in expected}
        assert difference(remembered.algorithm.g, moved) < 1e-5


def test_the_fixed_variant_of_fedsol_is_the_naive_loop_once_it_has_a_direction() -> None:
    """From weights that have drifted: at w = w_t its direction is rounding noise."""
    data, algorithm = digits(), FedSOL(rho=0.5, adaptive=False)
    f = model(algorithm, data)
    w = f.weights()
    batch = next(PLAN.batches(data, Stream(0)))
    with Stream(3).seeded():
        there = w + Vector(0.1 * torch.randn_like(w.flat), w.layout)
    ctx = Context(Weights(w), (), data.counts, Round(1, 3, 4, 40), PLAN, torch.tensor(10))
    ours = algorithm.gradient(f, there, batch, ctx)
    client = naive.Client(forward, double(w), data.counts.tolist())
    theirs = naive.fedsol(client, double(there), (batch.x.double(), batch.y), 0.5, adaptive=False)
    assert difference(ours, theirs) < 1e-5


def test_fedgela_is_the_naive_loop() -> None:
    data = digits()
    few = Shard(data.examples, data.rows, 10, data.transform)
    algorithm = FedGELA()
    with Stream(1).seeded():
        body = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Tanh())
    domain = data.transform.domain((1, 28, 28))
    f = assemble(body, algorithm.heads, domain, 10, Stream(2))
    w = f.weights()
    M = f.constants()["heads.head.M"].double()
    phi = [10 * n / len(few) for n in data.counts.tolist()]

    def scaled(v: naive.Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(x.flatten(1) @ v["body.1.weight"].T + v["body.1.bias"])
        mean = h.sum(0) / len(h)
        variance = ((h - mean) ** 2).sum(0) / len(h)
        normal = (h - mean) / (variance + 1e-5).sqrt()
        hhat = normal * v["heads.head.norm.weight"] + v["heads.head.norm.bias"]
        columns = [phi[c] * (hhat * M[:, c]).sum(1) / 0.2 for c in range(10)]
        return h, torch.stack(columns, dim=1)

    plan = LocalPlan(epochs=2, batch_size=12, lr=0.01, schedule=Constant(), clip=None)
    reply, _ = Learner(algorithm, f, plan).train(
        few, Weights(w), None, Round(1, 3, 4, 40), Stream(0)
    )
    client = naive.Client(scaled, double(w), data.counts.tolist())
    batches = [(x.double(), y) for x, y in plan.batches(few, Stream(0))]
    expected = naive.train(client, naive.fedavg, batches, 0.01, 0.9, 1e-5)
    assert difference(reply.w, expected) < 1e-5
