"""ResNet-18 with a CIFAR stem: He et al., "Deep Residual Learning for Image Recognition", CVPR
2016; as in the reference code (the FedNTD and FedSOL repositories that the paper builds on).
"""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from fedadb.models.layers import Norm, norm_layer, require_images


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, added to a shortcut around them."""

    def __init__(self, norm: Norm, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm_layer(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm_layer(norm, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(norm_layer(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


@dataclass(frozen=True)
class ResNet18:
    """ResNet-18 for grey or colour images of at least 28×28: eight residual blocks, 512 features.

    The first convolution is 3×3 without pooling, as usual for CIFAR.

    ```python
    fedadb.Experiment(dataset="cifar10", model=fedadb.ResNet18(norm="group"))
    ```
    """

    # normalisation by statistics of the current "batch", or by "group" for single images
    norm: Literal["batch", "group"] = "batch"

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require_images("resnet18", shape, smallest=28)
        blocks: list[nn.Module] = []
        inputs = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [
                ResidualBlock(self.norm, inputs, width, stride),
                ResidualBlock(self.norm, width, width, 1),
            ]
            inputs = width
        return nn.Sequential(
            nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
            norm_layer(self.norm, 64),
            nn.ReLU(),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
