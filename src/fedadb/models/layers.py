"""What the convolutional networks here share."""

from typing import Literal

from torch import nn

from fedadb.core.errors import BadInput

Norm = Literal["batch", "group"]
"""batch: statistics of the batch at hand, in evaluation too, and none kept (the reference models).
group: GroupNorm, for a model that will see single images."""


def normalise(norm: Norm, channels: int, eps: float = 1e-5) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels, eps=eps, track_running_stats=False)
    return nn.GroupNorm(2, channels, eps=eps)


def require(model: str, shape: tuple[int, ...], smallest: int) -> None:
    """Examples of 1 or 3 channels and at least this size."""
    channels, height, width = shape
    if channels not in (1, 3) or min(height, width) < smallest:
        raise BadInput(
            f"{model} takes images of 1 or 3 channels from {smallest}×{smallest}; "
            f"these have {channels} channels and {height}×{width}"
        )
