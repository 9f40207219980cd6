"""Local optimisers against torch.optim."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedadb.core.errors import BadInput
from fedadb.core.optimizers import OPTIMIZERS, SGD, Adam, AdamW, Optimizer
from fedadb.core.vector import Vector
from fedadb.experiment.config import Experiment

STEPS = 20


def start() -> Vector:
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (7, 5), "bias": (7,)}
    return Vector.of({name: torch.randn(s, generator=generator) for name, s in shapes.items()})


def loss(w: Tensor) -> Tensor:
    """Neither quadratic nor symmetric, so that every term of an update matters."""
    scales = torch.linspace(0.1, 3, len(w))
    return (scales * (w - 0.3) ** 2).sum() + torch.sin(3 * w).sum()


def gradient(w: Tensor) -> Tensor:
    at = w.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(at), at)
    return g


def trained(optimizer: Optimizer, lr: float, weight_decay: float) -> Tensor:
    w = start()
    state = optimizer.start(w)
    for _ in range(STEPS):
        optimizer.step(w, Vector(gradient(w.flat), w.layout), state, lr, weight_decay)
    return w.flat


def trained_by_torch(cls: type[Any], **settings: Any) -> Tensor:
    w = start().flat.requires_grad_()
    optimiser = cls([w], **settings)
    for _ in range(STEPS):
        optimiser.zero_grad()
        w.grad = gradient(w)
        optimiser.step()
    return w.detach()


@pytest.mark.parametrize("lr", [0.1, 0.01, 1e-3])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize(
    ("optimizer", "cls", "settings"),
    [
        (SGD(), torch.optim.SGD, {"momentum": 0.9}),
        (SGD(momentum=0), torch.optim.SGD, {}),
        (SGD(momentum=0.7, nesterov=True), torch.optim.SGD, {"momentum": 0.7, "nesterov": True}),
        (Adam(), torch.optim.Adam, {}),
        (Adam(0.5, 0.9, 1e-3), torch.optim.Adam, {"betas": (0.5, 0.9), "eps": 1e-3}),
        (AdamW(), torch.optim.AdamW, {}),
        (AdamW(0.8, 0.95, 1e-4), torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-4}),
    ],
    ids=str,
)
def test_twenty_steps_are_those_of_torch(
    optimizer: Optimizer, cls: type[Any], settings: dict[str, Any], lr: float, weight_decay: float
) -> None:
    ours = trained(optimizer, lr, weight_decay)
    theirs = trained_by_torch(cls, lr=lr, weight_decay=weight_decay, **settings)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert not torch.equal(ours, start().flat)


def test_weight_decay_of_adamw_is_not_that_of_adam() -> None:
    assert torch.equal(trained(AdamW(), 0.01, 0.0), trained(Adam(), 0.01, 0.0))
    assert not torch.allclose(trained(AdamW(), 0.01, 0.5), trained(Adam(), 0.01, 0.5))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_is_zero_at_first_and_shares_nothing_with_the_weights(name: str) -> None:
    optimizer, w = OPTIMIZERS[name](), start()
    state = optimizer.start(w)
    assert all(not tensor.any() for tensor in state)
    optimizer.step(w, Vector(gradient(w.flat), w.layout), state, 0.1, 0.0)
    assert all(tensor.any() for tensor in state)
    assert all(not tensor.any() for tensor in optimizer.start(w))


def test_momentum_that_looks_ahead_needs_momentum() -> None:
    with pytest.raises(BadInput, match="nesterov = True: has no effect without momentum"):
        SGD(momentum=0, nesterov=True)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ("adm", "local.optimizer = 'adm': is not known; did you mean adam or adamw?"),
        (3, "local.optimizer = 3: must be a name, or a table with a name"),
        ({"name": "sgd", "momentum": 1.0}, "local.optimizer.momentum = 1.0: must be less than 1"),
        ({"name": "sgd", "momentum": -0.1}, "local.optimizer.momentum = -0.1: must be greater"),
        (
            {"name": "sgd", "momentum": 0, "nesterov": True},
            "local.optimizer.nesterov = True: has no effect without momentum",
        ),
        ({"name": "sgd", "nesterov": 1}, "local.optimizer.nesterov = 1: must be true or false"),
        ({"name": "sgd", "beta1": 0.9}, "local.optimizer.beta1 is not a setting"),
        ({"name": "adam", "beta1": 1.0}, "local.optimizer.beta1 = 1.0: must be less than 1"),
        ({"name": "adam", "beta2": 2.0}, "local.optimizer.beta2 = 2.0: must be less than 1"),
        ({"name": "adam", "eps": 0}, "local.optimizer.eps = 0: must be greater than 0"),
        ({"name": "adamw", "beta1": -1}, "local.optimizer.beta1 = -1: must be greater"),
        ({"name": "adamw", "beta2": 1}, "local.optimizer.beta2 = 1: must be less than 1"),
        ({"name": "adamw", "eps": -1}, "local.optimizer.eps = -1: must be greater than 0"),
        (
            {"name": "adam", "momentum": 0.9},
            "local.optimizer.momentum is not a setting",
        ),
        (f"{__name__}:start", "is not a dataclass"),
        ("fedadb.core.data:Shard", "local.optimizer.examples is missing"),
        ("fedadb.core.schedules:Constant", "local.optimizer = Constant(): must be an instance of"),
    ],
    ids=str,
)
def test_impossible_optimisers_are_refused_in_one_sentence(optimizer: Any, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        Experiment.read({"local": {"optimizer": optimizer}})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
