"""The kernels against torch's own, on networks of any shape."""

import ctypes
import math
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedadb.kernels import library, operators
from fedadb.kernels.body import LanesBody, fast_body
from fedadb.kernels.library import compiler
from fedadb.kernels.operators import Layer, decode, encode

pytestmark = pytest.mark.usefixtures("needs_kernels")

EXACT = 2**24  # float32 has all whole numbers up to this one


@st.composite
def bodies(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, int, int]]:
    """Small networks of the layers that the kernels compute, and the shape of their images."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 13), st.integers(1, 13)))
    modules: list[nn.Module] = []
    channels, *sides = shape
    for _ in range(draw(st.integers(1, 3))):
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
    for _ in range(draw(st.integers(0, 3))):
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


@pytest.fixture(params=["x86-64", "x86-64-v3"])
def other_processor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The kernels, compiled for processors with vectors of 4 and of 8 numbers."""
    if platform.machine() != "x86_64" or torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this processor does not compute what is compiled for those")
    file = tmp_path / "kernels.so"
    options = ["-O1", f"-march={request.param}", "-std=c++17", "-shared", "-fPIC", "-w"]
    subprocess.run([*compiler(), *options, str(library.SOURCE), "-o", str(file)], check=True)
    loaded = ctypes.CDLL(str(file))
    for function in (loaded.fedadb_forward_work, loaded.fedadb_backward_work):
        function.restype = ctypes.c_size_t
    monkeypatch.setattr(operators, "library", lambda: loaded)
    decode.cache_clear()
    yield
    decode.cache_clear()


@pytest.mark.usefixtures("other_processor")
def test_kernels_for_other_processors_agree_with_torch() -> None:
    rng = torch.Generator().manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 30),
        nn.ReLU(),
        nn.Linear(30, 7),
    )
    fast = fast_body(body, (1, 14, 14))
    assert fast is not None
    x, direction = torch.randn(37, 1, 14, 14, generator=rng), torch.randn(37, 7, generator=rng)
    expected = gradients(body, x, direction)
    found = lanes_gradients(fast, flat(list(body.parameters())), x, direction)
    for ours, torchs in zip(found, expected, strict=True):
        assert (ours - torchs).norm() <= 1e-4 * torchs.norm()


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


@pytest.mark.parametrize("place", range(4))
def test_not_a_number_is_not_lost(place: int) -> None:
    body = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    fast = fast_body(body, (1, 2, 2))
    assert fast is not None
    x = torch.zeros(1, 1, 2, 2)
    x.view(-1)[place] = math.nan
    assert body(x).isnan().all()
    assert fast(flat(list(body.parameters())), x).isnan().all()


def test_each_gradient_is_the_same_without_the_other(
    lenet: tuple[nn.Sequential, LanesBody, Tensor],
) -> None:
    _, fast, w = lenet
    x, direction = torch.randn(20, 1, 28, 28), torch.randn(84, 20).t()  # not contiguous
    _, gx, gw = lanes_gradients(fast, w, x, direction)
    at = w.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(fast(at, x), at, direction)[0], gw)
    at = x.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(fast(w, at), at, direction)[0], gx)


@pytest.mark.parametrize("outputs", [1, 2, 7])
def test_a_narrow_layer_s_features_do_not_depend_on_the_batch(outputs: int) -> None:
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(12, outputs))
    fast, w = fast_body(body, (1, 4, 4)), flat(list(body.parameters()))
    assert fast is not None
    x = torch.randn(70, 1, 4, 4)
    alone = torch.cat([fast(w, image) for image in torch.split(x, 1)])
    assert torch.equal(fast(w, x), alone)


CONVOLUTION = Layer(1, 4, 3, 1, 8, 8)


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [Layer(64, 5)],
        [CONVOLUTION] + [Layer(256, 256)] * 32,
        [CONVOLUTION, Layer(255, 5)],
        [CONVOLUTION, Layer(256, 5), CONVOLUTION],
        [CONVOLUTION, Layer(3, 4, 3, 1, 8, 8)],
        [CONVOLUTION._replace(kernel=2)],
        [CONVOLUTION._replace(kernel=9)],
        [CONVOLUTION._replace(padding=3)],
        [CONVOLUTION._replace(padding=-1)],
        [CONVOLUTION._replace(height=0, padding=0)],
        [CONVOLUTION._replace(outputs=0)],
        [CONVOLUTION._replace(height=10**5, width=10**5)],
    ],
)
def test_networks_that_the_kernels_do_not_compute_are_refused(layers: list[Layer]) -> None:
    with pytest.raises(ValueError, match="the kernels compute no network of the layers"):
        decode(encode(layers))


def test_what_backward_reads_must_be_what_forward_returned() -> None:
    program, shape = encode([CONVOLUTION]), [2, 1, 8, 8]
    x, w = torch.randn(shape), torch.randn(40)
    y, saved, which = torch.ops.fedadb.forward(x, w, program)
    arguments = [y, y, saved, which, w, program, shape, True, True]
    torch.ops.fedadb.backward(*arguments)
    for i in range(5):
        short = list(arguments)
        short[i] = short[i][:-1]
        with pytest.raises(ValueError, match="`forward` of 2 images of shape"):
            torch.ops.fedadb.backward(*short)
    arguments[6] = [2, 1, 4, 4]
    with pytest.raises(ValueError, match="`forward` of 2 images of shape"):
        torch.ops.fedadb.backward(*arguments)


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
