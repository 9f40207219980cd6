"""ResNet-18 with a CIFAR stem: He et al., "Deep Residual Learning for Image Recognition", CVPR
2016; as in the reference code (the FedNTD and FedSOL repositories that the paper builds on).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from fedadb.core.errors import BadInput
from fedadb.models.layers import Norm, norm_layer, require_images
from fedadb.roles import Added


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
    """ResNet-18 for grey or colour images of at least 28×28: eight blocks, 8 · width features.

    The first convolution is 3×3 without pooling, as usual for CIFAR.

    ```python
    fedadb.Experiment(dataset="cifar10", model=fedadb.ResNet18(norm="group"))
    ```
    """

    # normalisation by statistics of the current "batch", or by "group" for single images
    norm: Literal["batch", "group"] = "batch"
    # channels of the first two blocks; the other six have 2, 4 and 8 times as many
    width: Annotated[int, Ge(1), Added()] = 64

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require_images("resnet18", shape, smallest=28)
        if self.norm == "group" and self.width % 2:
            raise BadInput(f"model.width = {self.width}: must be even, for two groups of channels")
        blocks: list[nn.Module] = []
        inputs = self.width
        for times, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
            outputs = times * self.width
            blocks += [
                ResidualBlock(self.norm, inputs, outputs, stride),
                ResidualBlock(self.norm, outputs, outputs, 1),
            ]
            inputs = outputs
        return nn.Sequential(
            nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            norm_layer(self.norm, self.width),
            nn.ReLU(),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
