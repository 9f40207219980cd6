"""The model architectures by name."""

from typing import Protocol, runtime_checkable

from torch import nn

from fedadb.models.cnn import CNN
from fedadb.models.inception import Inception
from fedadb.models.lenet import LeNet
from fedadb.models.mlp import MLP
from fedadb.models.resnet import ResNet18


@runtime_checkable
class Architecture(Protocol):
    """Makes the body φ of a classifier; the algorithm adds the heads."""

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        """A module that maps a batch of inputs of this shape to one row of features each."""
        ...


MODELS: dict[str, type[Architecture]] = {
    "lenet": LeNet,
    "mlp": MLP,
    "cnn": CNN,
    "resnet18": ResNet18,
    "inception": Inception,
}
