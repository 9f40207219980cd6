"""3×3 convolutions of many channels against torch's own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedadb.kernels.winograd import convolve

pytestmark = pytest.mark.usefixtures("needs_kernels")

CHANNELS = st.sampled_from([16, 32, 48, 64, 80])
SIDES = st.integers(1, 13)


def passes(x: Tensor, weight: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the gradients of the images and of the weights."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = convolve(x, weight)
    gx, gw = torch.autograd.grad(y, [x, weight], g)
    return y.detach(), gx, gw


def exact(x: Tensor, weight: Tensor, g: Tensor) -> Iterator[Tensor]:
    """The same by torch, in float64."""
    x, weight = x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    y = torch.conv2d(x, weight, padding=1)
    yield y.detach()
    yield from torch.autograd.grad(y, [x, weight], g.double())


def arguments(
    images: int, inputs: int, outputs: int, height: int, width: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Images, weights and the gradient of the result."""
    rng = torch.Generator().manual_seed(seed)
    shapes = ((images, inputs, height, width), (outputs, inputs, 3, 3))
    x, weight = (torch.randn(shape, generator=rng) for shape in shapes)
    g = torch.randn(images, outputs, height, width, generator=rng)
    return x.to(memory_format=torch.channels_last), weight, g


@settings(max_examples=40)
@given(st.integers(1, 7), CHANNELS, CHANNELS, SIDES, SIDES, st.integers(0, 2**31))
def test_every_pass_agrees_with_float64_to_1e_5_of_its_norm(
    images: int, inputs: int, outputs: int, height: int, width: int, seed: int
) -> None:
    given = arguments(images, inputs, outputs, height, width, seed)
    for ours, torchs in zip(passes(*given), exact(*given), strict=True):
        assert ours.shape == torchs.shape
        assert (ours - torchs).norm() <= 1e-5 * torchs.norm()


@pytest.mark.parametrize("channels", [64, 144])
def test_many_tiles_agree_with_float64_to_1e_5_of_their_norm(channels: int) -> None:
    given = arguments(24, channels, 64, 30, 15)
    for ours, torchs in zip(passes(*given), exact(*given), strict=True):
        assert (ours - torchs).norm() <= 1e-5 * torchs.norm()


def test_positive_values_agree_with_float64_to_1e_5_of_their_norm() -> None:
    """What a ReLU leaves has a large mean, which the transforms have to cancel."""
    given = tuple(one.abs() for one in arguments(5, 64, 64, 14, 14))
    for ours, torchs in zip(passes(*given), exact(*given), strict=True):
        assert (ours - torchs).norm() <= 1e-5 * torchs.norm()


def test_an_image_does_not_depend_on_the_others_of_its_batch() -> None:
    x, weight, g = arguments(37, 64, 80, 7, 9)
    y, gx, _ = passes(x, weight, g)
    for part in (slice(0, 1), slice(5, 18), slice(30, 37)):
        alone = passes(x[part], weight, g[part])
        assert torch.equal(y[part], alone[0])
        assert torch.equal(gx[part], alone[1])


def test_images_without_a_gradient_change_no_bit_of_the_weights_gradient() -> None:
    x, weight, g = arguments(37, 64, 32, 7, 9)
    g[20:] = 0
    assert torch.equal(passes(x, weight, g)[2], passes(x[:20], weight, g[:20])[2])


def test_equal_arguments_give_equal_bits() -> None:
    given = arguments(9, 80, 48, 11, 6)
    for first, second in zip(passes(*given), passes(*given), strict=True):
        assert torch.equal(first, second)


def test_arguments_of_any_memory_layout_are_read_correctly() -> None:
    x, weight, g = arguments(6, 32, 48, 9, 10)
    expected = passes(x, weight, g)
    spread = torch.stack([weight, weight], dim=-1)[..., 0]
    for images, kernels, gradient in (
        (x.contiguous(), weight.to(memory_format=torch.channels_last), g.contiguous()),
        (torch.stack([x, x])[1], spread, torch.stack([g, g], dim=-1)[..., 0]),
    ):
        for ours, first in zip(passes(images, kernels, gradient), expected, strict=True):
            assert torch.equal(ours, first)
    ones = torch.ones(()).expand(g.shape)  # all values are one place in memory
    assert torch.equal(passes(x, weight, ones)[1], passes(x, weight, ones.clone())[1])


def test_values_behind_the_last_kernel_are_not_used() -> None:
    x, weight, g = arguments(2, 16, 16, 5, 5)
    memory = torch.full((weight.numel() + 64,), torch.nan)
    memory[: weight.numel()] = weight.flatten()
    inner = memory[: weight.numel()].view(weight.shape)
    for ours, expected in zip(passes(x, inner, g), passes(x, weight, g), strict=True):
        assert torch.equal(ours, expected)


def called(function: Callable[[], object]) -> list[str]:
    """The names of the operators that the function calls."""
    profiler: Any = torch.profiler  # its functions have no types
    with profiler.profile() as profile:
        function()
    return [event.name for event in profile.events()]


def test_images_in_channels_last_format_are_not_copied_and_stay_in_it() -> None:
    x, weight, g = arguments(3, 64, 32, 6, 6)
    g = g.to(memory_format=torch.channels_last)
    y, gx, _ = passes(x, weight, g)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert gx.is_contiguous(memory_format=torch.channels_last)
    assert "aten::copy_" not in called(lambda: passes(x, weight, g))
    assert "aten::copy_" in called(lambda: passes(x.contiguous(), weight, g))


def test_only_the_gradients_that_are_needed_are_computed() -> None:
    x, weight, g = arguments(2, 16, 32, 5, 5)
    _, gx, gw = passes(x, weight, g)
    for_x, for_weight = x.detach().requires_grad_(), weight.detach().requires_grad_()

    def of_input() -> None:
        assert torch.equal(torch.autograd.grad(convolve(for_x, weight), for_x, g)[0], gx)

    def of_weight() -> None:
        assert torch.equal(torch.autograd.grad(convolve(x, for_weight), for_weight, g)[0], gw)

    assert "fedadb::weight_gradient" not in called(of_input)
    assert "fedadb::input_gradient" not in called(of_weight)


def test_not_a_number_is_not_lost() -> None:
    x, weight, _ = arguments(2, 16, 16, 8, 8)
    x[1, 3, 2, 2] = torch.nan
    y = convolve(x, weight)
    assert y[0].isfinite().all()
    assert y[1, :, 1:4, 1:4].isnan().all()


def test_no_image_has_no_gradient() -> None:
    y, gx, gw = passes(*arguments(0, 16, 32, 8, 8))
    assert y.shape == (0, 32, 8, 8)
    assert gx.shape == (0, 16, 8, 8)
    assert not gw.any()


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        ((2, 16, 8, 8), (16, 32, 3, 3)),
        ((2, 24, 8, 8), (16, 24, 3, 3)),
        ((2, 16, 8, 8), (8, 16, 3, 3)),
        ((2, 16, 8, 8), (16, 16, 5, 5)),
        ((16, 8, 8), (16, 16, 3, 3)),
        ((2, 16, 8, 8), (16,)),
        ((2, 0, 8, 8), (16, 0, 3, 3)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(x: tuple[int, ...], weight: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="channels agree and are multiples of 16, not"):
        convolve(torch.zeros(x), torch.zeros(weight))


def test_gradients_that_do_not_fit_are_refused() -> None:
    x, weight, g = arguments(2, 16, 32, 8, 8)
    operators = torch.ops.fedadb
    for refused in (
        lambda: convolve(x.double(), weight.double()),
        lambda: convolve(x, weight.double()),
        lambda: operators.input_gradient(x, weight),
        lambda: operators.weight_gradient(g[:1], x),
        lambda: operators.weight_gradient(g[:, :, 1:], x),
        lambda: operators.weight_gradient(g.double(), x),
        lambda: operators.weight_gradient(g[:, :8], x),
    ):
        with pytest.raises(ValueError, match="the convolution takes images and 3×3 kernels"):
            refused()


def test_second_derivatives_are_refused_and_not_wrong() -> None:
    x, weight, _ = arguments(2, 16, 16, 5, 5)
    y = convolve(x, weight.requires_grad_())
    with pytest.raises(NotImplementedError, match=r'set engine\.kernels = "torch"'):
        torch.autograd.grad(y.square().sum(), weight, create_graph=True)


def test_the_operators_are_registered_as_torch_expects() -> None:
    x, weight, g = arguments(2, 16, 32, 5, 5)
    operators = torch.ops.fedadb
    torch.library.opcheck(operators.convolve, (x.requires_grad_(), weight.requires_grad_()))
    torch.library.opcheck(operators.input_gradient, (g, weight.detach()))
    torch.library.opcheck(operators.weight_gradient, (g, x.detach()))
