"""Normalisation layers, and the check of image shapes that all architectures share."""

from typing import Literal

from torch import nn

from fedadb.core.errors import BadInput

Norm = Literal["batch", "group"]
"""The normalisation of a model.

"batch" uses the statistics of the current batch, in evaluation too, and keeps none, as the
reference models do. "group" is GroupNorm, for models that will classify single images.
"""


def norm_layer(norm: Norm, channels: int, eps: float = 1e-5) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels, eps=eps, track_running_stats=False)
    return nn.GroupNorm(2, channels, eps=eps)


def require_images(model: str, shape: tuple[int, ...], smallest: int) -> None:
    """Raise BadInput unless the shape has 1 or 3 channels and sides of at least `smallest`."""
    takes = f"{model} takes images of 1 or 3 channels from {smallest}×{smallest}"
    if len(shape) != 3:
        # Floats without an axis of channels may be anything; only uint8 are taken for grey images.
        grey = "grey images of floats need a channel axis, x[:, None]; " if len(shape) == 2 else ""
        raise BadInput(
            f"{takes}, and these inputs have the shape {'×'.join(map(str, shape))}; "
            f"{grey}model = 'mlp' takes any"
        )
    channels, height, width = shape
    if channels not in (1, 3) or min(height, width) < smallest:
        raise BadInput(f"{takes}; these have {channels} channels and {height}×{width}")
