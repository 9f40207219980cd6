"""The operations of a model: two for each multiply-add of its convolutions and products.

Biases, activations, pooling and normalisation are not counted. A step consists of the forward pass,
the gradients of all weights, and those of the inputs of all layers but the first.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def forward_flops(f: nn.Module, shape: tuple[int, ...]) -> int:
    """The operations of a forward pass, per image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        f(torch.zeros(2, *shape))
    return int(counter.get_total_flops()) // 2


def step_flops(f: nn.Module, shape: tuple[int, ...]) -> int:
    """The operations of a training step, per image of the batch."""
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(F.cross_entropy(f(torch.zeros(2, *shape)), torch.zeros(2).long()))
    return int(counter.get_total_flops()) // 2
