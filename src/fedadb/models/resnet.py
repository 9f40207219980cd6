"""ResNet-18 with a CIFAR stem: He et al., "Deep Residual Learning for Image Recognition", CVPR
2016; the form that FedNTD and its descendants use.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from fedadb.models.layers import Norm, normalise, require


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, norm: Norm, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = normalise(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = normalise(norm, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(normalise(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


@dataclass(frozen=True)
class ResNet18:
    """A 3×3 stem without pooling, eight blocks of width 64 to 512; 512 features."""

    norm: Norm = "batch"

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require("resnet18", shape, smallest=28)
        blocks: list[nn.Module] = []
        inputs = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [
                Block(self.norm, inputs, width, stride),
                Block(self.norm, width, width, 1),
            ]
            inputs = width
        return nn.Sequential(
            nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
            normalise(self.norm, 64),
            nn.ReLU(),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
