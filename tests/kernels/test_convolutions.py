"""Which convolutions of a body our own kernels compute, and when."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from fedadb.core.data import DataSpec
from fedadb.core.model import Model
from fedadb.core.transform import Transform
from fedadb.core.vector import gradient
from fedadb.experiment.build import build_model
from fedadb.experiment.config import Experiment
from fedadb.kernels import convolutions, library
from fedadb.kernels.convolutions import FastConvolution, is_fast, use_kernels, use_torch
from fedadb.kernels.notice import KernelsWarning, warn_of_torch
from fedadb.kernels.selection import kernels_of, select_convolutions

SPEC = DataSpec(("a", "b", "c"), (3, 28, 28), Transform((0.5,) * 3, (0.5,) * 3))


def convolution(inputs: int = 64, outputs: int = 64, kernel: int = 3, **settings: Any) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(inputs, outputs, kernel, **{"padding": 1, **settings})


def fast_convolutions(module: nn.Module) -> nn.Module:
    """A copy of the module on our own kernels."""
    fast = copy.deepcopy(module)
    use_kernels(fast)
    return fast


def is_torchs(body: nn.Module) -> bool:
    return not any(isinstance(module, FastConvolution) for module in body.modules())


def make(kernels: str = "auto") -> Model:
    model = {"name": "resnet18", "norm": "group"}
    return build_model(
        Experiment(algorithm="fedavg", model=model, engine={"kernels": kernels}), SPEC
    )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The inputs of our own kernels."""
    seen: list[Tensor] = []

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        seen.append(x)
        return torch.conv2d(x, weight, padding=1)

    monkeypatch.setattr(convolutions, "convolve", convolve)
    return seen


def test_convolutions_of_many_channels_are_fast() -> None:
    assert is_fast(convolution())
    assert is_fast(convolution(32, 512, bias=False))
    assert is_fast(convolution(padding="same"))


class Other(nn.Conv2d):
    """A convolution of the user's own."""


def hooked() -> nn.Conv2d:
    module = convolution()
    module.register_forward_hook(lambda module, inputs, output: 2 * output)
    return module


@pytest.mark.parametrize(
    "module",
    [
        convolution(kernel=1, padding=0),
        convolution(kernel=5, padding=2),
        convolution(padding=0),
        convolution(padding=(1, 0)),
        convolution(padding="valid"),
        convolution(stride=2),
        convolution(dilation=2),
        convolution(groups=2),
        convolution(padding_mode="circular"),
        convolution(3, 64),
        convolution(64, 16),
        convolution(72, 64),
        Other(64, 64, 3, padding=1),
        nn.utils.parametrizations.weight_norm(convolution()),
        hooked(),
        nn.Linear(64, 64),
    ],
    ids=str,
)
def test_other_modules_are_torchs(module: nn.Module) -> None:
    assert not is_fast(module)
    assert type(fast_convolutions(module)) is type(module)


def test_the_weights_and_their_names_stay_as_they_are() -> None:
    body = nn.Sequential(convolution(3, 64), nn.Sequential(nn.ReLU(), convolution()))
    before = dict(body.named_parameters())
    use_kernels(body)
    assert type(body.get_submodule("0")) is nn.Conv2d
    assert type(body.get_submodule("1.1")) is FastConvolution
    assert all(before[name] is parameter for name, parameter in body.named_parameters())
    use_torch(body)
    assert type(body.get_submodule("1.1")) is nn.Conv2d


class CallsItself(nn.Module):
    """Its function refers to the module that it belongs to, as a copy's would not."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(64, 64, 3, padding=1)
        self.steps = [lambda x: self.convolution(x).flatten(1)]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.steps[0](x)
        return y


@pytest.mark.usefixtures("needs_kernels")
def test_a_body_whose_functions_refer_to_itself_is_trained() -> None:
    body = CallsItself()
    select_convolutions(body, (64, 4, 4))
    assert type(body.convolution) is FastConvolution
    x = torch.randn(2, 64, 4, 4)
    zeros = {name: torch.zeros_like(p) for name, p in body.named_parameters()}
    assert not torch.func.functional_call(body, zeros, (x,)).any()


@pytest.mark.usefixtures("needs_kernels")
@pytest.mark.parametrize("bias", [True, False])
def test_the_module_computes_what_torchs_does(bias: bool) -> None:
    torchs = convolution(64, 80, bias=bias)
    ours = fast_convolutions(torchs)
    x = torch.randn(3, 64, 6, 5)
    weights = {name: p.detach().clone().requires_grad_() for name, p in ours.named_parameters()}
    results = [functional_call(module, weights, (x,)) for module in (ours, torchs)]
    torch.testing.assert_close(*results)
    g = torch.randn(3, 80, 6, 5)
    of_ours, of_torchs = (torch.autograd.grad(y, list(weights.values()), g) for y in results)
    assert len(of_ours) == 1 + bias
    for one, other in zip(of_ours, of_torchs, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_the_kernels_take_float32_images_on_a_cpu(calls: list[Tensor]) -> None:
    module = fast_convolutions(convolution())
    x = torch.randn(2, 64, 6, 6)
    torch.testing.assert_close(module(x), convolution()(x))
    assert len(calls) == 1


@pytest.mark.parametrize(
    "x", [torch.randn(64, 6, 6), torch.randn(2, 64, 2, 6), torch.randn(2, 64, 6, 1)]
)
def test_single_and_tiny_images_are_torchs(x: Tensor, calls: list[Tensor]) -> None:
    assert torch.equal(fast_convolutions(convolution())(x), convolution()(x))
    assert not calls


def test_float64_and_bfloat16_are_torchs(calls: list[Tensor]) -> None:
    module, x = fast_convolutions(convolution()), torch.randn(2, 64, 6, 6)
    assert copy.deepcopy(module).double()(x.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype == torch.bfloat16
    assert not calls


def test_vmap_and_second_derivatives_of_torch_func_are_torchs(calls: list[Tensor]) -> None:
    module = fast_convolutions(convolution())
    stacked = torch.randn(3, 2, 64, 4, 4)

    def power(x: Tensor) -> Tensor:
        y: Tensor = module(x)
        return y.pow(3).sum()

    each = torch.vmap(module)(stacked)
    torch.testing.assert_close(each[1], convolution()(stacked[1]))
    twice = torch.func.grad(lambda x: torch.func.grad(power)(x).square().sum())(stacked[0])
    assert twice.any()
    assert not calls


def test_forward_mode_derivatives_are_torchs(calls: list[Tensor]) -> None:
    with forward_ad.dual_level():
        fast_convolutions(convolution())(torch.randn(1, 64, 4, 4))
    assert not calls


@pytest.mark.usefixtures("needs_kernels")
def test_images_of_wrong_channels_have_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="to have 64 channels"):
        fast_convolutions(convolution())(torch.randn(2, 80, 6, 6))


@pytest.mark.usefixtures("needs_kernels")
def test_resnet_is_computed_by_our_own_kernels_unless_torchs_are_asked_for() -> None:
    ours, torchs = make(), make("torch")
    assert kernels_of(torchs) == "torch"
    assert library.name() in kernels_of(ours)
    fast = [m for m in ours.module.modules() if isinstance(m, FastConvolution)]
    assert len(fast) == 13  # all but the first, and one of stride 2 in each of three blocks
    w = ours.weights()
    assert w.layout == torchs.layout
    assert torch.equal(w.flat, torchs.weights().flat)
    x, y = torch.rand(2, 3, 28, 28), torch.tensor([0, 2])
    a = gradient(lambda v: F.cross_entropy(ours(v, x).logits, y), w)
    b = gradient(lambda v: F.cross_entropy(torchs(v, x).logits, y), w)
    assert (a - b).norm() <= 1e-3 * b.norm()  # of sixteen layers with ReLUs
    assert torch.equal(pickle.loads(pickle.dumps(ours))(w, x).logits, ours(w, x).logits)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_computes_and_one_sentence_says_so() -> None:
    body = nn.Sequential(convolution())
    with pytest.warns(KernelsWarning, match="no C\\+\\+ compiler is installed"):
        select_convolutions(body, (64, 8, 8))
    assert is_torchs(body)
    small = nn.Sequential(convolution(3, 64))
    select_convolutions(small, (3, 8, 8))  # nothing to compile, nothing to say


@pytest.mark.usefixtures("needs_kernels")
def test_kernels_that_compute_something_else_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = nn.Sequential(convolution())
    select_convolutions(body, (64, 8, 8))
    assert not is_torchs(body)
    body = nn.Sequential(convolution())
    monkeypatch.setattr(convolutions, "convolve", lambda x, weight: 2 * x)
    warn_of_torch.cache_clear()
    with pytest.warns(KernelsWarning, match="compute other features than torch"):
        select_convolutions(body, (64, 8, 8))
    assert is_torchs(body)
    warn_of_torch.cache_clear()
