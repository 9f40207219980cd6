"""Batch normalisation with statistics that are fixed, for a model that sees single images."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_layers(module: nn.Module) -> list[_BatchNorm]:
    """The layers that normalise by the batch at hand."""
    layers = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    return [layer for layer in layers if layer.running_mean is None]


class Moments:
    """The mean and the variance of each channel over all that was seen; sums in float64."""

    def __init__(self, channels: int) -> None:
        self.count = 0
        self.sum = torch.zeros(channels, dtype=torch.float64)
        self.squares = torch.zeros(channels, dtype=torch.float64)

    def see(self, x: Tensor) -> None:
        values = x.transpose(0, 1).flatten(1).double()
        self.count += values.shape[1]
        self.sum += values.sum(1)
        self.squares += values.square().sum(1)

    def mean(self) -> Tensor:
        return self.sum / self.count

    def variance(self) -> Tensor:
        return (self.squares / self.count - self.mean().square()).clamp(min=0)


@torch.no_grad()
def freeze(module: nn.Module, batches: Iterable[Tensor]) -> None:
    """Fix each layer's statistics to those of what it is given when the module sees the batches.

    While it sees them the layers normalise as they were trained, each batch by its own.
    """
    seen = {layer: Moments(layer.num_features) for layer in batch_layers(module)}
    hooks = [layer.register_forward_pre_hook(partial(_see, of)) for layer, of in seen.items()]
    for batch in batches:
        module(batch)
    for hook in hooks:
        hook.remove()
    for layer, moments in seen.items():
        fix(layer, moments.mean().float(), moments.variance().float())


def fix(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    layer.running_mean, layer.running_var = mean, variance
    layer.num_batches_tracked = torch.tensor(0)  # which torch expects beside them in a file
    layer.track_running_stats = True
    layer.eval()


def _see(moments: Moments, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    moments.see(inputs[0])
