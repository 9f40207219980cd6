"""Other readings of the paper, for experiments/studies/readings.toml.

They are not part of the package.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedadb.algorithms.fedadb import Anchors, BalancedBatch, FedADB
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector
from fedadb.models.lenet import LeNet


@dataclass(frozen=True)
class SingleAnchors(FedADB):
    """A balanced batch holds each anchor once at most; only real rows are repeated."""

    def mix(self, f: Model, real: Batch, anchors: Anchors, copies: Tensor) -> BalancedBatch:
        return super().mix(f, real, anchors, copies.clamp(max=1))


@dataclass(frozen=True)
class UnitAnchors(FedADB):
    """Anchors are projected to [0, 1] after normalisation, where images have other bounds."""

    def optimise(self, f: Model, w: Vector, x: Tensor, c: Tensor) -> Anchors:
        low, high = torch.zeros_like(f.domain.low), torch.ones_like(f.domain.high)
        unit = replace(f, domain=f.domain._replace(low=low, high=high))
        return super().optimise(unit, w, x, c)


@dataclass(frozen=True)
class NormalisedLeNet:
    """LeNet with normalisation by the statistics of the batch after each convolution."""

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        layers: list[nn.Module] = []
        for layer in LeNet().body(shape).children():
            layers.append(layer)
            if isinstance(layer, nn.Conv2d):
                layers.append(nn.BatchNorm2d(layer.out_channels, track_running_stats=False))
        return nn.Sequential(*layers)


@dataclass(frozen=True)
class ColourLeNet:
    """LeNet for three channels, all of which are the grey image."""

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(Repeated(3), *LeNet().body((3, *shape[1:])).children())


class Repeated(nn.Module):
    """Repeats the only channel of images."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, self.times, -1, -1)
