"""LeNet-5 with ReLU and max-pooling: LeCun et al., "Gradient-Based Learning Applied to Document
Recognition", Proc. IEEE 1998.
"""

from dataclasses import dataclass

from torch import nn

from fedadb.models.layers import require_images


@dataclass(frozen=True)
class LeNet:
    """LeNet-5 for grey or colour images of at least 28×28: two convolutions, 84 features.

    ```python
    fedadb.Experiment(dataset="digits", model=fedadb.LeNet())
    ```
    """

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require_images("lenet", shape, smallest=28)
        channels, height, width = shape
        pooled = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
        return nn.Sequential(
            # ReLU and max-pooling commute; after pooling, ReLU has a quarter of the work.
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
