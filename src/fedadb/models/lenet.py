"""LeNet-5 with ReLU and max-pooling: LeCun et al., "Gradient-Based Learning Applied to Document
Recognition", Proc. IEEE 1998.
"""

from dataclasses import dataclass

from torch import nn

from fedadb.models.layers import require


@dataclass(frozen=True)
class LeNet:
    """Two 5×5 convolutions without padding, two hidden layers; 84 features."""

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require("lenet", shape, smallest=28)
        channels, height, width = shape
        pooled = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
        return nn.Sequential(
            # Pooling and ReLU give the same either way round; this way ReLU has a quarter to do.
            nn.Conv2d(channels, 6, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * pooled[0] * pooled[1], 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
