"""Which bodies the kernels compute."""

import pytest
import torch
from torch import Tensor, nn

from fedadb.kernels.body import fast_body
from fedadb.models.cnn import CNN
from fedadb.models.lenet import LeNet
from fedadb.models.mlp import MLP

SHAPE = (3, 12, 12)


def sequential(*middle: nn.Module, first: nn.Module | None = None) -> nn.Sequential:
    convolution = nn.Conv2d(3, 4, 3, padding=1) if first is None else first
    return nn.Sequential(convolution, *middle, nn.Flatten(), nn.LazyLinear(7))


def made(body: nn.Sequential) -> nn.Sequential:
    body(torch.zeros(2, *SHAPE))  # gives lazy layers their size
    return body


def test_lenet_is_computed_by_the_kernels() -> None:
    assert fast_body(LeNet().body((1, 28, 28)), (1, 28, 28)) is not None
    assert fast_body(LeNet().body((3, 32, 32)), (3, 32, 32)) is not None


def test_networks_with_many_channels_or_without_convolutions_are_torchs() -> None:
    assert fast_body(CNN().body((1, 28, 28)), (1, 28, 28)) is None
    assert fast_body(MLP().body((20,)), (20,)) is None


@pytest.mark.usefixtures("needs_kernels")
def test_a_nested_sequential_of_known_layers_is_computed_by_the_kernels() -> None:
    relu = nn.ReLU()  # the same module may stand in several places
    body = made(nn.Sequential(sequential(relu, nn.MaxPool2d(2, stride=(2, 2))), relu))
    fast = fast_body(body, SHAPE)
    assert fast is not None
    x = torch.randn(5, *SHAPE)
    w = torch.cat([p.detach().flatten() for p in body.parameters()])
    torch.testing.assert_close(fast(w, x), body(x))


@pytest.mark.parametrize(
    "body",
    [
        sequential(first=nn.Conv2d(3, 4, 4)),
        sequential(first=nn.Conv2d(3, 4, 9, padding=4)),
        sequential(first=nn.Conv2d(3, 4, (3, 5))),
        sequential(first=nn.Conv2d(3, 4, 3, padding=(1, 0))),
        sequential(first=nn.Conv2d(3, 4, 3, padding=3)),
        sequential(first=nn.Conv2d(3, 4, 3, stride=2)),
        sequential(first=nn.Conv2d(3, 4, 3, dilation=2)),
        sequential(first=nn.Conv2d(3, 6, 3, groups=3)),
        sequential(first=nn.Conv2d(3, 4, 3, bias=False)),
        sequential(first=nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")),
        sequential(first=nn.Conv2d(3, 33, 3)),
        sequential(nn.Conv2d(33, 4, 3), first=nn.Conv2d(3, 33, 3)),
        sequential(nn.GELU()),
        sequential(nn.MaxPool2d(3)),
        sequential(nn.MaxPool2d(2, stride=1)),
        sequential(nn.MaxPool2d(2, padding=1)),
        sequential(nn.MaxPool2d(2, ceil_mode=True)),
        sequential(nn.AvgPool2d(2)),
        sequential(nn.MaxPool2d(2), nn.MaxPool2d(2)),
        sequential(nn.GroupNorm(2, 4)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(start_dim=2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(432, 7)),
    ],
    ids=str,
)
def test_other_layers_are_torchs(body: nn.Sequential) -> None:
    assert fast_body(made(body), SHAPE) is None


def test_a_module_that_occurs_twice_is_torchs() -> None:
    square = nn.Conv2d(3, 3, 3, padding=1)
    assert fast_body(made(sequential(square, first=square)), SHAPE) is None


def test_frozen_weights_are_torchs() -> None:
    body = made(sequential(nn.ReLU()))
    next(body.parameters()).requires_grad_(False)
    assert fast_body(body, SHAPE) is None


def test_hooks_and_forwards_of_ones_own_are_torchs() -> None:
    class Doubled(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            for module in self:
                x = module(x)
            return 2 * x

    for register in (
        lambda module: module.register_forward_hook(lambda module, inputs, output: 2 * output),
        lambda module: module.register_full_backward_pre_hook(lambda module, g: (2 * g[0],)),
        lambda module: setattr(module, "forward", torch.tanh),
    ):
        changed = made(sequential(nn.ReLU()))
        register(changed[1])
        assert fast_body(changed, SHAPE) is None
    assert fast_body(Doubled(*made(sequential(nn.ReLU()))), SHAPE) is None
    normed = made(sequential(first=nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))))
    assert fast_body(normed, SHAPE) is None
