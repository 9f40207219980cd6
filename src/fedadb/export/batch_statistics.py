"""Freezes the statistics of batch normalisation, so that a model can classify single images."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_layers(module: nn.Module) -> list[_BatchNorm]:
    """The layers that normalise by the statistics of the current batch."""
    layers = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    return [layer for layer in layers if layer.running_mean is None]


class Moments:
    """The mean and variance of each channel over several batches, summed in float64."""

    def __init__(self, channels: int) -> None:
        self.count = 0
        self.sum = torch.zeros(channels, dtype=torch.float64)
        self.squares = torch.zeros(channels, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        values = x.transpose(0, 1).flatten(1).double()
        self.count += values.shape[1]
        self.sum += values.sum(1)
        self.squares += values.square().sum(1)

    def mean(self) -> Tensor:
        return self.sum / self.count

    def variance(self) -> Tensor:
        return (self.squares / self.count - self.mean().square()).clamp(min=0)


@torch.no_grad()
def freeze_statistics(module: nn.Module, batches: Iterable[Tensor]) -> None:
    """Fix the statistics of each batch layer to those of its inputs over all batches.

    Meanwhile the layers normalise as in training, each batch by its own statistics.
    """
    moments = {layer: Moments(layer.num_features) for layer in batch_layers(module)}
    hooks = [layer.register_forward_pre_hook(partial(_record, m)) for layer, m in moments.items()]
    for batch in batches:
        module(batch)
    for hook in hooks:
        hook.remove()
    for layer, m in moments.items():
        set_statistics(layer, m.mean().float(), m.variance().float())


def set_statistics(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Make the layer normalise by this mean and variance."""
    layer.running_mean, layer.running_var = mean, variance
    layer.num_batches_tracked = torch.tensor(0)  # torch expects it in the state dict
    layer.track_running_stats = True
    layer.eval()


def _record(moments: Moments, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    moments.add(inputs[0])
