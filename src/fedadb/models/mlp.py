"""A multi-layer perceptron. With its default sizes it is the 2NN of McMahan et al.,
"Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from annotated_types import Ge, Le
from torch import nn


@dataclass(frozen=True)
class MLP:
    """Fully connected layers with ReLU, for inputs of any shape: vectors, tables, small images.

    ```python
    fedadb.Experiment(dataset="digits", model=fedadb.MLP(hidden=(64, 32)))
    ```
    """

    # sizes of the hidden layers, of which the last is the number of features; without any, the
    # features are the inputs, so that the classifier is linear
    hidden: tuple[Annotated[int, Ge(1), Le(10**9)], ...] = (200, 200)

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise((math.prod(shape), *self.hidden)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers)
