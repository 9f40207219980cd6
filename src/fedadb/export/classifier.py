"""The exported classifier, and the model card that describes it."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge, Le, MinLen
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from fedadb.core.errors import BadInput
from fedadb.experiment import validation
from fedadb.experiment.named_algorithms import to_algorithm
from fedadb.experiment.stored import StoredRun
from fedadb.experiment.toml_tables import renamed
from fedadb.models import MODELS
from fedadb.storage.files import parse_json

SUFFIXES = (".safetensors", ".onnx")  # of the formats that `fedadb export` writes

Side = Annotated[int, Ge(1), Le(65_535)]  # of an image


class ModelCard(NamedTuple):
    """The metadata of an exported file: all that is needed to use its model."""

    experiment: str  # resolved, in TOML
    classes: Annotated[tuple[str, ...], MinLen(1)]  # names
    shape: tuple[Side, Side, Side]  # of an image: channels, height, width
    mean: tuple[float, ...]  # per channel, of pixels in [0, 1]
    std: tuple[float, ...]
    # The number of training images that batch statistics were frozen from; 0: the model has none.
    frozen: int = 0
    privacy: str = ""  # what differential privacy promises, with ε and δ; "": nothing

    def to_strings(self) -> dict[str, str]:
        """The card as text by field: JSON, except for the experiment's TOML."""
        fields = {name: json.dumps(value) for name, value in self._asdict().items()}
        return fields | {"experiment": self.experiment}


def card_from_strings(strings: Mapping[str, str], path: Path) -> ModelCard:
    """The card that `to_strings` wrote; BadInput if the file at `path` has none."""
    try:
        strings = {"privacy": '""', **strings}  # earlier versions had no private runs
        names = [name for name in ModelCard._fields if name != "experiment"]
        fields = {name: parse_json(strings[name]) for name in names}
        fields["experiment"] = strings["experiment"]
        card: ModelCard = TypeAdapter(ModelCard).validate_python(fields)
    except (KeyError, ValueError, ValidationError) as error:
        raise BadInput(f"{path} was not written by `fedadb export`") from error
    if not len(card.mean) == len(card.std) == card.shape[0]:
        raise BadInput(
            f"{path} is inconsistent: its images have {card.shape[0]} channels, but its mean and "
            f"std have {len(card.mean)} and {len(card.std)} values"
        )
    return card


class ImageClassifier(nn.Module):
    """Maps images, N × C × H × W in [0, 1], to the probabilities of their classes.

    It consists of the normalisation, the body φ and the deployed head ψ of a trained model.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, body: nn.Module, head: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.body = body
        self.head = head
        for name in ("mean", "std"):  # not stored with the weights: the card has them
            value = torch.tensor(getattr(card, name)).view(-1, 1, 1)
            self.register_buffer(name, value, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body((images - self.mean) / self.std))
        return logits.softmax(1)


def trained_classifier(run: StoredRun, card: ModelCard) -> ImageClassifier:
    """The run's classifier with its deployed weights, as a copy."""
    w = run.w  # reading the weights also restores the constants of f
    module = copy.deepcopy(run.f.module)
    module.load_state_dict(w.views(), strict=False)
    return ImageClassifier(module.body, module.heads[run.f.head], card)


def untrained_classifier(table: dict[str, Any], card: ModelCard, features: int) -> ImageClassifier:
    """The classifier that an experiment's table describes; its weights are still to be loaded.

    Until then the body's have shapes but no memory, of which a foreign file could demand any
    amount.
    """
    table = renamed(table)
    with torch.device("meta"):
        body = validation.to_named(MODELS, table["model"], "model").body(card.shape)
    heads = to_algorithm(table["algorithm"]).heads(features, len(card.classes))
    return ImageClassifier(body, next(iter(heads.values())), card)
