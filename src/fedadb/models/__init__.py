"""The models by name: each makes the body φ of a classifier for images of a given shape."""

from typing import Protocol, runtime_checkable

from torch import nn

from fedadb.models.inception import Inception
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18


@runtime_checkable
class Architecture(Protocol):
    """What makes a body φ for images of a given shape."""

    def body(self, shape: tuple[int, ...]) -> nn.Module: ...


MODELS: dict[str, type[Architecture]] = {
    "lenet": LeNet,
    "resnet18": ResNet18,
    "inception": Inception,
}
