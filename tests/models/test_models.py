"""The model architectures: their sizes, the images they take, and their normalisation."""

import pytest
import torch
from torch import nn

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.errors import BadInput
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.models import Architecture
from fedadb.models.cnn import CNN
from fedadb.models.inception import Inception
from fedadb.models.lenet import LeNet
from fedadb.models.mlp import MLP
from fedadb.models.resnet import ResNet18


def model(architecture: Architecture, shape: tuple[int, ...], classes: int) -> Model:
    domain = Domain.unbounded(shape)
    return assemble(architecture.body(shape), FedAvg().heads, domain, classes, Stream(0))


@pytest.mark.parametrize(
    ("architecture", "shape", "classes", "parameters", "features"),
    [
        (LeNet(), (1, 28, 28), 10, 44_426, 84),
        (LeNet(), (1, 28, 28), 11, 44_511, 84),
        (LeNet(), (1, 28, 28), 8, 44_256, 84),
        (ResNet18(), (3, 32, 32), 10, 11_173_962, 512),
        (ResNet18(), (3, 32, 32), 100, 11_220_132, 512),
        (ResNet18(), (3, 28, 28), 9, 11_173_449, 512),
        (ResNet18(norm="group"), (3, 32, 32), 10, 11_173_962, 512),
        (ResNet18(width=16), (3, 32, 32), 10, 2724 * 16**2 + 177 * 16 + 1_290, 128),
        (ResNet18("group", 6), (3, 28, 28), 10, 2724 * 6**2 + 177 * 6 + 490, 48),
        (Inception(), (3, 64, 64), 7, 5_607_079, 1024),
        (MLP(), (1, 28, 28), 10, 199_210, 200),  # as McMahan et al. state for their 2NN
        (MLP(hidden=(5,)), (30,), 2, 30 * 5 + 5 + 5 * 2 + 2, 5),
        (MLP(hidden=()), (4, 3), 2, 12 * 2 + 2, 12),
        (CNN(), (1, 28, 28), 10, 1_663_370, 512),  # as McMahan et al. state
        (CNN(), (3, 32, 32), 10, 832 + 2 * 800 + 51_264 + 4096 * 512 + 512 + 5_130, 512),
    ],
)
def test_parameter_counts(
    architecture: Architecture,
    shape: tuple[int, ...],
    classes: int,
    parameters: int,
    features: int,
) -> None:
    f = model(architecture, shape, classes)
    assert f.weights().flat.numel() == parameters
    out = f(f.weights(), torch.randn(2, *shape))
    assert out.features.shape == (2, features)
    assert out.logits.shape == (2, classes)
    assert not list(f.module.buffers())


def test_two_groups_need_an_even_width() -> None:
    with pytest.raises(BadInput, match=r"model\.width = 5: must be even"):
        ResNet18(norm="group", width=5).body((3, 32, 32))
    ResNet18(norm="batch", width=5).body((3, 32, 32))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 28, 28), (3, 33, 47), (1, 64, 64)])
def test_lenet_takes_any_size_from_28(shape: tuple[int, ...]) -> None:
    f = model(LeNet(), shape, 10)
    assert f(f.weights(), torch.randn(2, *shape)).features.shape == (2, 84)


@pytest.mark.parametrize(
    ("architecture", "shape"),
    [
        (ResNet18(), (1, 28, 28)),
        (ResNet18(), (3, 64, 64)),
        (ResNet18(norm="group"), (3, 45, 37)),
        (Inception(), (1, 64, 64)),
        (Inception(norm="group"), (3, 97, 80)),
    ],
)
def test_resnet_and_inception_take_larger_images(
    architecture: Architecture, shape: tuple[int, ...]
) -> None:
    f = model(architecture, shape, 7)
    assert f(f.weights(), torch.randn(2, *shape)).logits.isfinite().all()


@pytest.mark.parametrize(
    ("architecture", "shape"),
    [
        (LeNet(), (1, 27, 28)),
        (LeNet(), (2, 28, 28)),
        (ResNet18(), (3, 8, 8)),
        (Inception(), (3, 32, 32)),
        (CNN(), (1, 3, 28)),
        (CNN(), (2, 28, 28)),
    ],
)
def test_images_that_are_too_small_are_refused(
    architecture: Architecture, shape: tuple[int, ...]
) -> None:
    with pytest.raises(BadInput, match="takes images of 1 or 3 channels from"):
        architecture.body(shape)


@pytest.mark.parametrize("architecture", [LeNet(), ResNet18(), Inception(), CNN()])
@pytest.mark.parametrize("shape", [(30,), (28, 28), (1, 3, 28, 28)])
def test_models_for_images_refuse_vectors_and_name_one_that_does_not(
    architecture: Architecture, shape: tuple[int, ...]
) -> None:
    with pytest.raises(BadInput, match=r"have the shape .*; model = 'mlp' takes any"):
        architecture.body(shape)


def test_outputs_depend_on_the_batch_with_batch_norm_only() -> None:
    x = torch.randn(4, 3, 32, 32)
    batch, group = (model(ResNet18(norm), (3, 32, 32), 10) for norm in ("batch", "group"))
    assert batch.batch_statistics
    assert not group.batch_statistics
    together, alone = (group(group.weights(), x[:n]).logits[:1] for n in (4, 1))
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    together, alone = (batch(batch.weights(), x[:n]).logits[:1] for n in (4, 1))
    assert (together - alone).abs().max() > 1e-3


def test_resnet_has_the_cifar_stem() -> None:
    body = ResNet18().body((3, 32, 32))
    assert isinstance(body, nn.Sequential)
    assert not any(isinstance(m, nn.MaxPool2d) for m in body.modules())
    assert body[0].kernel_size == (3, 3)
    assert body[0].stride == (1, 1)
    assert body[:-2](torch.randn(1, 3, 32, 32)).shape == (1, 512, 4, 4)
