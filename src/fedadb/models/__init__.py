"""The models by name: each makes the body φ of a classifier for images of a given shape."""

from fedadb.models.inception import Inception
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18

Architecture = LeNet | ResNet18 | Inception

MODELS: dict[str, type[Architecture]] = {
    "lenet": LeNet,
    "resnet18": ResNet18,
    "inception": Inception,
}
