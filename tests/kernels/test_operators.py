"""The kernels against torch's own, on networks of any shape."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedadb.kernels.body import LanesBody, fast_body
from fedadb.kernels.operators import encode

pytestmark = pytest.mark.usefixtures("needs_kernels")

EXACT = 2**24  # float32 has all whole numbers up to this one


@st.composite
def bodies(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, int, int]]:
    """Small networks of the layers that the kernels compute, and the shape of their images."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 13), st.integers(1, 13)))
    modules: list[nn.Module] = []
    channels, *sides = shape
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.sampled_from([1, 3, 5, 7]))
        padding = draw(st.integers(0, kernel - 1))
        outputs = draw(st.integers(1, 13))
        modules.append(nn.Conv2d(channels, outputs, kernel, padding=padding))
        channels, sides = outputs, [side + 2 * padding - kernel + 1 for side in sides]
        followers = draw(st.sampled_from(_followers()))
        modules += followers
        if any(isinstance(module, nn.MaxPool2d) for module in followers):
            sides = [side // 2 for side in sides]
        assume(min(sides) > 0)
    modules.append(nn.Flatten())
    features = channels * math.prod(sides)
    for _ in range(draw(st.integers(0, 2))):
        outputs = draw(st.integers(1, 20))
        modules += [nn.Linear(features, outputs), *draw(st.sampled_from([[], [nn.ReLU()]]))]
        features = outputs
    return nn.Sequential(*modules), shape


def _followers() -> list[list[nn.Module]]:
    relu, pool = nn.ReLU(), nn.MaxPool2d(2)
    return [[], [relu], [pool], [relu, pool], [pool, relu]]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def gradients(
    body: nn.Sequential, x: Tensor, direction: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Torch's features, and its gradients by the images and by the weights."""
    x = x.clone().requires_grad_()
    y = body(x)
    direction = torch.ones_like(y) if direction is None else direction
    gx, *gw = torch.autograd.grad(y, [x, *body.parameters()], direction)
    return y.detach(), gx, flat(gw)


def lanes_gradients(
    fast: LanesBody, w: Tensor, x: Tensor, direction: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = fast(w, x)
    gx, gw = torch.autograd.grad(y, [x, w], direction)
    return y.detach(), gx, gw


@settings(max_examples=60)
@given(bodies(), st.integers(1, 70), st.integers(0, 2**31))
def test_whole_numbers_give_exactly_torchs_features_and_gradients(
    made: tuple[nn.Sequential, tuple[int, int, int]], images: int, seed: int
) -> None:
    body, shape = made
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=rng))
    x = torch.randint(-1, 2, (images, *shape), generator=rng).float()
    w = flat(list(body.parameters()))
    fast = fast_body(body, shape)
    assert fast is not None
    y = body(x)
    direction = torch.randint(-1, 2, y.shape, generator=rng).float()
    expected = gradients(body.double(), x.double(), direction.double())
    assume(all(one.abs().max() < EXACT for one in expected))
    for ours, torchs in zip(lanes_gradients(fast, w, x, direction), expected, strict=True):
        assert torch.equal(ours.double(), torchs)


@pytest.fixture
def lenet() -> tuple[nn.Sequential, LanesBody, Tensor]:
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
    )
    fast = fast_body(body, (1, 28, 28))
    assert fast is not None
    return body, fast, flat(list(body.parameters()))


@pytest.mark.parametrize("images", [1, 16, 50, 128])
def test_gradients_agree_with_torchs_to_1e_5_of_their_norm(
    images: int, lenet: tuple[nn.Sequential, LanesBody, Tensor]
) -> None:
    body, fast, w = lenet
    x = torch.randn(images, 1, 28, 28)
    direction = torch.randn(images, 84)
    expected = gradients(body, x, direction)
    for ours, torchs in zip(lanes_gradients(fast, w, x, direction), expected, strict=True):
        assert (ours - torchs).norm() <= 1e-5 * torchs.norm()


def test_an_images_features_do_not_depend_on_the_batch_or_on_the_gradient(
    lenet: tuple[nn.Sequential, LanesBody, Tensor],
) -> None:
    _, fast, w = lenet
    x = torch.randn(150, 1, 28, 28)
    together = fast(w, x)
    assert torch.equal(together, torch.cat([fast(w, part) for part in torch.split(x, 37)]))
    assert torch.equal(together, fast(w.requires_grad_(), x))


def test_rows_without_a_gradient_change_no_bit(
    lenet: tuple[nn.Sequential, LanesBody, Tensor],
) -> None:
    _, fast, w = lenet
    x, direction = torch.randn(50, 1, 28, 28), torch.randn(50, 84)
    more = torch.cat([x, torch.randn(41, 1, 28, 28)])
    padded = torch.cat([direction, torch.zeros(41, 84)])
    assert torch.equal(
        lanes_gradients(fast, w, x, direction)[2], lanes_gradients(fast, w, more, padded)[2]
    )


def test_arguments_of_any_memory_layout_are_read_correctly(
    lenet: tuple[nn.Sequential, LanesBody, Tensor],
) -> None:
    _, fast, w = lenet
    x = torch.randn(28, 28, 1, 20).permute(3, 2, 0, 1)
    spread = torch.stack([w, w], dim=1)[:, 0]
    assert torch.equal(fast(spread, x), fast(w, x.contiguous()))


def test_arguments_that_do_not_fit_are_refused(
    lenet: tuple[nn.Sequential, LanesBody, Tensor],
) -> None:
    _, fast, w = lenet
    x = torch.randn(4, 1, 28, 28)
    for weights, images in ((w, x[:, :, 1:]), (w[1:], x), (w.double(), x), (w, x.double())):
        with pytest.raises(ValueError, match=r"images of shape \(1, 28, 28\) and 43576 weights"):
            fast(weights, images)


def test_not_a_number_is_not_lost(lenet: tuple[nn.Sequential, LanesBody, Tensor]) -> None:
    _, fast, w = lenet
    assert fast(w.fill_(math.nan), torch.randn(3, 1, 28, 28)).isnan().all()


def test_no_image_has_no_feature(lenet: tuple[nn.Sequential, LanesBody, Tensor]) -> None:
    _, fast, w = lenet
    y, _, gw = lanes_gradients(fast, w, torch.empty(0, 1, 28, 28), torch.empty(0, 84))
    assert y.shape == (0, 84)
    assert not gw.any()


def test_the_operators_are_registered_as_torch_expects(
    lenet: tuple[nn.Sequential, LanesBody, Tensor],
) -> None:
    _, fast, w = lenet
    arguments = (torch.randn(5, 1, 28, 28), w.requires_grad_(), encode(fast.layers))
    torch.library.opcheck(torch.ops.fedadb.forward, arguments)
    torch.library.opcheck(torch.ops.fedadb.evaluate, (arguments[0], w.detach(), arguments[2]))
