"""Server optimisers, by numbers worked out beforehand.

w = (0, 0); Δ is (0.1, −0.02) in the first round and (0.05, 0.04) in the second.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput
from fedadb.core.packing import pack, unpack
from fedadb.core.server_optimizers import (
    SERVER_OPTIMIZERS,
    ServerAdagrad,
    ServerAdam,
    ServerOptimizer,
    ServerSGD,
    ServerYogi,
)
from fedadb.core.vector import Vector
from fedadb.experiment.config import Experiment

DELTAS = ((0.1, -0.02), (0.05, 0.04))


def vector(*numbers: float) -> Vector:
    return Vector.of({"w": torch.tensor(numbers, dtype=torch.float64)})


def rounds(optimizer: ServerOptimizer, lr_factor: float = 1.0) -> list[list[float]]:
    """The weights after each of the two rounds."""
    w, found = vector(0, 0), []
    state = optimizer.init(w)
    for t, delta in enumerate(DELTAS, start=1):
        at = Round(t, 2, 10, 100, lr_factor)
        w, state = optimizer.step(w, w + vector(*delta), state, at)
        found.append(w.flat.tolist())
    return found


ADAGRAD = ServerAdagrad(lr=0.1)
ADAM = ServerAdam(lr=0.1)
YOGI = ServerYogi(lr=0.1)


@pytest.mark.parametrize(
    ("optimizer", "first", "second"),
    [
        (ADAGRAD, (0.099005, -0.095125), (0.143328, -0.007660)),
        (replace(ADAGRAD, initial=0.0), (0.099010, -0.095238), (0.143335, -0.007752)),
        (replace(ADAGRAD, beta1=0.9), (0.009900, -0.009512), (0.022311, -0.004702)),
        (ADAM, (0.090503, -0.061846), (0.205451, -0.022392)),
        (replace(ADAM, initial=0.0), (0.090909, -0.066667), (0.206273, -0.026430)),
        (
            replace(ADAM, initial=0.0, bias_correction=True),
            (0.090909, -0.066667),
            (0.176562, -0.036793),
        ),
        (YOGI, (0.090499, -0.061803), (0.205018, -0.022395)),
        (replace(YOGI, initial=0.0), (0.090909, -0.066667), (0.205848, -0.026463)),
        (ServerSGD(), (0.1, -0.02), (0.24, 0.002)),
        (ServerSGD(momentum=0.7), (0.1, -0.02), (0.22, 0.006)),
        # The form m ← βm + (1 − β)Δ, in which the first step is a tenth.
        (ServerSGD(lr=0.1), (0.01, -0.002), (0.024, 0.0002)),
    ],
    ids=str,
)
def test_two_rounds(
    optimizer: ServerOptimizer, first: tuple[float, float], second: tuple[float, float]
) -> None:
    found = rounds(optimizer)
    assert found[0] == pytest.approx(first, abs=5.1e-7)
    assert found[1] == pytest.approx(second, abs=5.1e-7)


@pytest.mark.parametrize("initial", [0.0, 0.3])
def test_adagrad_is_torchs(initial: float) -> None:
    ours = rounds(replace(ADAGRAD, initial=initial))
    w = vector(0, 0).flat.requires_grad_()
    theirs = torch.optim.Adagrad([w], lr=0.1, initial_accumulator_value=initial, eps=1e-3)
    for delta, expected in zip(DELTAS, ours, strict=True):
        w.grad = -torch.tensor(delta, dtype=torch.float64)
        theirs.step()
        assert w.tolist() == pytest.approx(expected, rel=1e-12)


def test_plain_sgd_returns_the_proposal_itself() -> None:
    """The sum w + (proposal − w) would differ from it by rounding."""
    w, proposal = vector(1.0, 1.0), vector(1e-17, 0.1)
    optimizer = ServerSGD(lr=1.0, momentum=0.0)
    found, _ = optimizer.step(w, proposal, optimizer.init(w), Round(1, 2, 10, 100))
    assert torch.equal(found.flat, proposal.flat)
    assert not torch.equal((w + (proposal - w)).flat, proposal.flat)


def test_adam_that_never_adapts_is_the_mean() -> None:
    """With v = τ² throughout, η = 2τ makes the step Δ."""
    tau = 0.01
    found = rounds(ServerAdam(lr=2 * tau, beta1=0.0, beta2=1.0, tau=tau))
    assert found[0] == pytest.approx(DELTAS[0], rel=1e-12)
    assert found[1] == pytest.approx((0.15, 0.02), rel=1e-12)


@pytest.mark.parametrize("optimizer", [ADAM, YOGI], ids=str)
def test_adam_and_yogi_follow_the_clients_schedule(optimizer: Any) -> None:
    whole, half = rounds(optimizer), rounds(optimizer, lr_factor=0.5)
    assert half[0] == pytest.approx([x / 2 for x in whole[0]])
    assert rounds(replace(optimizer, follow_schedule=False), lr_factor=0.5) == whole


@pytest.mark.parametrize("optimizer", [ADAGRAD, ServerSGD()], ids=str)
def test_the_others_do_not(optimizer: ServerOptimizer) -> None:
    assert rounds(optimizer, lr_factor=0.5) == rounds(optimizer)


def test_the_correction_of_yogi_is_that_of_adam() -> None:
    plain, corrected = (rounds(replace(YOGI, bias_correction=on))[0] for on in (False, True))
    factor = math.sqrt(1 - 0.99) / (1 - 0.9)
    assert corrected == pytest.approx([factor * x for x in plain])


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_a_step_modifies_nothing_and_its_state_can_be_saved(name: str) -> None:
    optimizer = SERVER_OPTIMIZERS[name]()
    w, proposal = vector(1.0, 2.0), vector(1.5, 1.0)
    state = optimizer.init(w)
    given = (w, proposal, *state)
    before = [v.flat.clone() for v in given]
    _, after = optimizer.step(w, proposal, state, Round(1, 2, 10, 100))
    assert all(torch.equal(v.flat, old) for v, old in zip(given, before, strict=True))
    restored = unpack(type(after), pack(after), w.layout)
    assert all(
        torch.equal(there.flat, here.flat) for there, here in zip(restored, after, strict=True)
    )


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_a_weight_that_no_client_changes_stays(name: str) -> None:
    optimizer, w = SERVER_OPTIMIZERS[name](), vector(3.0, 1.0)
    found, _ = optimizer.step(w, vector(3.0, 2.0), optimizer.init(w), Round(1, 2, 10, 100))
    assert found.flat[0] == 3.0
    assert found.flat[1] > 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("adm", "server.optimizer = 'adm': is not known; did you mean adam?"),
        (3, "server.optimizer = 3: must be a name, or a table with a name"),
        ({"lr": 0.1}, "server.optimizer.lr = 0.1: server.optimizer is none; name one of sgd"),
        ({"name": "none", "tau": 1}, "server.optimizer.tau = 1: server.optimizer is none"),
        ({"name": "sgd", "lr": 0}, "server.optimizer.lr = 0: must be greater than 0"),
        ({"name": "sgd", "momentum": 1}, "server.optimizer.momentum = 1: must be less than 1"),
        ({"name": "sgd", "tau": 1}, "server.optimizer.tau is not a setting"),
        ({"name": "adagrad", "lr": -1}, "server.optimizer.lr = -1: must be greater than 0"),
        ({"name": "adagrad", "beta1": 1}, "server.optimizer.beta1 = 1: must be less than 1"),
        ({"name": "adagrad", "tau": 0}, "server.optimizer.tau = 0: must be greater than 0"),
        ({"name": "adagrad", "initial": -1}, "server.optimizer.initial = -1: must be greater"),
        ({"name": "adam", "lr": 0}, "server.optimizer.lr = 0: must be greater than 0"),
        ({"name": "adam", "beta1": 1}, "server.optimizer.beta1 = 1: must be less than 1"),
        ({"name": "adam", "beta2": 1}, "server.optimizer.beta2 = 1: must be less than 1"),
        ({"name": "adam", "tau": 0}, "server.optimizer.tau = 0: must be greater than 0"),
        ({"name": "adam", "initial": "tau"}, "server.optimizer.initial = 'tau': must be a number"),
        ({"name": "yogi", "lr": 0}, "server.optimizer.lr = 0: must be greater than 0"),
        ({"name": "yogi", "beta1": -1}, "server.optimizer.beta1 = -1: must be greater than"),
        ({"name": "yogi", "beta2": 1}, "server.optimizer.beta2 = 1: must be less than 1"),
        ({"name": "yogi", "tau": 0}, "server.optimizer.tau = 0: must be greater than 0"),
        ({"name": "yogi", "initial": -1}, "server.optimizer.initial = -1: must be greater"),
        ("fedadb.core.optimizers:SGD", "must have the methods init and step"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_in_one_sentence(given: Any, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        Experiment.read({"server": {"optimizer": given}})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
