"""Freezing batch statistics: numbers computed by hand, and whole models."""

import pytest
import torch
from torch import nn

from fedadb.algorithms.fedgela import SimplexETF
from fedadb.export.batch_statistics import Moments, batch_layers, freeze_statistics
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18


def test_moments_cover_all_batches() -> None:
    """Channel 0 has the values 1, 2, 3, 6: mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5."""
    moments = Moments(2)
    moments.add(torch.tensor([[[1.0, 2.0], [5.0, 5.0]]]))
    moments.add(torch.tensor([[[3.0, 6.0], [5.0, 5.0]]]))
    assert moments.mean().tolist() == [3.0, 5.0]
    assert moments.variance().tolist() == [3.5, 0.0]


def models() -> list[nn.Module]:
    torch.manual_seed(0)
    gela = nn.Sequential(LeNet().body((1, 28, 28)), SimplexETF(84, 10, "batch"))
    return [nn.Sequential(ResNet18().body((1, 28, 28)), nn.Linear(512, 10)), gela]


@pytest.mark.parametrize("model", models(), ids=["resnet18", "fedgela"])
def test_freezing_from_one_batch_does_not_change_its_predictions(model: nn.Module) -> None:
    x = torch.rand(6, 1, 28, 28)
    with torch.no_grad():
        before = model(x)
        freeze_statistics(model, [x])
        after, alone = model(x), torch.cat([model(image[None]) for image in x])
    assert not batch_layers(model)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(alone, after, rtol=1e-4, atol=1e-4)


def test_batches_are_normalised_by_their_own_statistics_meanwhile() -> None:
    """So the second layer receives mean 0 and variance 1, however the batches differ."""
    first, second = (nn.BatchNorm1d(1, affine=False, track_running_stats=False) for _ in "ab")
    freeze_statistics(
        nn.Sequential(first, second), [torch.tensor([[0.0], [2.0]]), torch.tensor([[8.0], [10]])]
    )
    means = [layer.running_mean for layer in (first, second)]
    variances = [layer.running_var for layer in (first, second)]
    torch.testing.assert_close(means, [torch.tensor([5.0]), torch.tensor([0.0])])
    torch.testing.assert_close(variances, [torch.tensor([17.0]), torch.tensor([1.0])])
