"""Which models our own kernels compute, and what happens where they cannot be compiled."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedadb
from fedadb.core.model import Model
from fedadb.core.vector import Vector
from fedadb.experiment.build import build_model, takes_own_kernels
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import Engine
from fedadb.kernels import library
from fedadb.kernels.notice import KernelsWarning, warn_of_torch
from fedadb.kernels.selection import kernels_here, kernels_of, select_body
from tests.conftest import GREY_IMAGES


def make(kernels: str = "auto", model: Any = "lenet", **engine: Any) -> Model:
    e = Experiment(algorithm="fedavg", model=model, engine={"kernels": kernels, **engine})
    return build_model(e, GREY_IMAGES)


def curvature(f: Model, x: Tensor) -> Tensor:
    """The gradient of a gradient's squared norm."""
    w = f.weights()
    at = w.flat.detach().requires_grad_()
    loss = f(Vector(at, w.layout), x).logits.square().sum()
    (g,) = torch.autograd.grad(loss, at, create_graph=True)
    (second,) = torch.autograd.grad(g @ g, at)
    return second


@pytest.mark.usefixtures("needs_kernels")
def test_lenet_is_computed_by_our_own_kernels_unless_torchs_are_asked_for() -> None:
    ours, torchs = make(), make("torch")
    assert ours.fast_body is not None
    assert torchs.fast_body is None
    assert kernels_of(ours) == f"fedadb {library.name()}"
    assert kernels_of(torchs) == "torch"
    x = torch.rand(5, 1, 28, 28)
    a, b = (f(f.weights(), x).logits for f in (ours, torchs))
    assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    ("engine", "device", "ours"),
    [
        (Engine(), "cpu", True),
        (Engine(kernels="torch"), "cpu", False),
        (Engine(), "cuda", False),
        (Engine(precision="bfloat16"), "cpu", False),
        (Engine(cohort="stacked"), "cpu", False),
    ],
)
def test_our_own_kernels_are_for_cpus_float32_and_clients_one_by_one(
    engine: Engine, device: str, ours: bool
) -> None:
    assert takes_own_kernels(engine, torch.device(device)) is ours


def test_other_models_are_computed_by_torch() -> None:
    f = make(model="mlp")
    assert f.fast_body is None
    assert kernels_of(f) == "torch"


@pytest.mark.usefixtures("needs_kernels")
def test_second_derivatives_are_refused_and_not_wrong() -> None:
    f, x = make(), torch.rand(3, 1, 28, 28)
    with pytest.raises(
        NotImplementedError, match=r'no second derivatives: set engine\.kernels = "torch"'
    ):
        curvature(f, x)
    assert curvature(replace(f, fast_body=None), x).isfinite().all()


def layers(*modules: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), *modules)


@pytest.mark.usefixtures("needs_kernels")
@pytest.mark.parametrize("shape", [(2, 144), (2, 5)])
def test_kernels_that_compute_other_features_are_not_used(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_torch.cache_clear()
    wrong = lambda body, of: lambda weights, x: torch.zeros(shape)  # noqa: E731
    monkeypatch.setattr("fedadb.kernels.body.fast_body", wrong)
    assert select_body(layers(nn.ReLU(), nn.Flatten()), (1, 8, 8)) is None
    assert caplog.messages == [
        "torch's kernels are used, which are slower: the compiled kernels compute other features "
        "than torch"
    ]


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_computes_and_one_sentence_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.warns(KernelsWarning) as warned:
        models = [make(), make()]
    assert [f.fast_body for f in models] == [None, None]
    sentence = "torch's kernels are used, which are slower: no C++ compiler is installed"
    assert [str(one.message) for one in warned] == [sentence]
    assert caplog.messages == [sentence]
    assert make("torch").fast_body is None
    assert kernels_here() == "torch (no C++ compiler is installed)"


@pytest.mark.usefixtures("no_compiler")
def test_a_program_that_turns_warnings_into_errors_still_runs() -> None:
    assert make().fast_body is None  # the tests turn them into errors


def test_a_library_that_cannot_be_used_leaves_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(progress: Any) -> None:
        raise library.KernelsUnavailable("others can write to it")

    monkeypatch.setattr(library, "build", refuse)
    assert make().fast_body is None
    assert caplog.messages == ["torch's kernels are used, which are slower: others can write to it"]


@pytest.mark.usefixtures("needs_kernels")
def test_a_model_of_small_convolutions_of_ones_own_is_fast() -> None:
    body = layers(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 13 * 13, 8))
    assert make(model=body).fast_body is not None


def test_the_public_model_has_no_fast_body() -> None:
    """Whoever assembles a model decides on its kernels."""
    f = fedadb.assemble(
        fedadb.LeNet().body((1, 28, 28)),
        fedadb.FedAvg().heads,
        fedadb.Domain.unbounded((1, 28, 28)),
        classes=3,
        rng=fedadb.Stream(0),
    )
    assert f.fast_body is None
