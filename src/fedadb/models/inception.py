"""InceptionV1 (GoogLeNet): Szegedy et al., "Going Deeper with Convolutions", CVPR 2015.

The common variant: normalised convolutions, no auxiliary heads, no dropout, and 3×3 kernels in
the branch that the paper calls 5×5.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedadb.models.layers import Norm, norm_layer, require_images


def convolution(norm: Norm, inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        norm_layer(norm, outputs, eps=1e-3),
        nn.ReLU(),
    )


class InceptionBlock(nn.Module):
    """Four parallel branches whose channels are concatenated."""

    def __init__(
        self,
        norm: Norm,
        inputs: int,
        one: int,
        three: tuple[int, int],
        five: tuple[int, int],
        pooled: int,
    ) -> None:
        super().__init__()
        self.one = convolution(norm, inputs, one, 1)
        self.three = nn.Sequential(
            convolution(norm, inputs, three[0], 1), convolution(norm, three[0], three[1], 3)
        )
        self.five = nn.Sequential(
            convolution(norm, inputs, five[0], 1), convolution(norm, five[0], five[1], 3)
        )
        self.pooled = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1), convolution(norm, inputs, pooled, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], dim=1)


@dataclass(frozen=True)
class Inception:
    """InceptionV1 for grey or colour images of at least 64×64: nine blocks, 1024 features.

    ```python
    fedadb.Experiment(dataset="pacs", model=fedadb.Inception(norm="group"))
    ```
    """

    # normalisation by statistics of the current "batch", or by "group" for single images
    norm: Literal["batch", "group"] = "batch"

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require_images("inception", shape, smallest=64)
        norm = self.norm
        return nn.Sequential(
            convolution(norm, shape[0], 64, 7, stride=2),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            convolution(norm, 64, 64, 1),
            convolution(norm, 64, 192, 3),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            InceptionBlock(norm, 192, 64, (96, 128), (16, 32), 32),
            InceptionBlock(norm, 256, 128, (128, 192), (32, 96), 64),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            InceptionBlock(norm, 480, 192, (96, 208), (16, 48), 64),
            InceptionBlock(norm, 512, 160, (112, 224), (24, 64), 64),
            InceptionBlock(norm, 512, 128, (128, 256), (24, 64), 64),
            InceptionBlock(norm, 512, 112, (144, 288), (32, 64), 64),
            InceptionBlock(norm, 528, 256, (160, 320), (32, 128), 128),
            nn.MaxPool2d(2, stride=2, ceil_mode=True),
            InceptionBlock(norm, 832, 256, (160, 320), (32, 128), 128),
            InceptionBlock(norm, 832, 384, (192, 384), (48, 128), 128),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
