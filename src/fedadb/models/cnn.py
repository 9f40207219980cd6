"""The CNN of McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, which they train on MNIST.
"""

from dataclasses import dataclass

from torch import nn

from fedadb.models.layers import require_images


@dataclass(frozen=True)
class CNN:
    """Two 5×5 convolutions for grey or colour images of at least 4×4: 512 features.

    ```python
    fedadb.Experiment(dataset="mnist", model=fedadb.CNN())
    ```
    """

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        require_images("cnn", shape, smallest=4)
        channels, height, width = shape
        return nn.Sequential(
            # ReLU and max-pooling commute; after pooling, ReLU has a quarter of the work.
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
        )
