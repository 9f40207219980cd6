"""What an exported file says about its model, so that nothing else is needed to use it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from fedadb.core.errors import BadInput

ENDINGS = (".safetensors", ".onnx")


class Card(NamedTuple):
    experiment: str  # resolved, in TOML
    classes: tuple[str, ...]  # the name of each class
    shape: tuple[int, int, int]  # of an image: channels, height, width
    mean: tuple[float, ...]  # of each channel, of pixels in [0, 1]
    std: tuple[float, ...]
    frozen: int = 0  # training images that batch statistics were frozen from; 0: it has none

    def strings(self) -> dict[str, str]:
        """As names and texts, which is what files have room for; all but the TOML are JSON."""
        fields = {name: json.dumps(value) for name, value in self._asdict().items()}
        return fields | {"experiment": self.experiment}


def read_card(strings: Mapping[str, str], path: Path) -> Card:
    """The card that `strings` made; BadInput if the file has another origin."""
    try:
        fields = {name: json.loads(strings[name]) for name in Card._fields if name != "experiment"}
        fields["experiment"] = strings["experiment"]
        card: Card = TypeAdapter(Card).validate_python(fields)
    except (KeyError, ValueError, ValidationError) as error:
        raise BadInput(f"{path} is not a model that `fedadb export` wrote") from error
    if not len(card.mean) == len(card.std) == card.shape[0]:
        raise BadInput(f"{path} says nothing certain about the channels of its images")
    return card
