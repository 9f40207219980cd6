"""A deployed model as a safetensors file: its weights, and the card to build it from."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedadb.core.errors import BadInput, Fault
from fedadb.storage.tensorfile import read_tensors, write_tensors
from fedadb.experiment import config
from fedadb.export.card import Card, read_card
from fedadb.export.deployed import Deployed, unfilled
from fedadb.export.statistics import batch_layers, fix


def write(path: Path, model: Deployed, card: Card) -> None:
    if own := own_code(card.experiment):
        raise BadInput(
            f"--to {path}: {own} is code of your own, which weights are no use without; "
            "export to .onnx, which holds the computation itself"
        )
    write_tensors(path, model.state_dict(), card.strings())


class Torch:
    """The model of a file, computed by torch."""

    def __init__(self, path: Path) -> None:
        self.card, self._model = read(path)

    @torch.inference_mode()
    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._model(torch.from_numpy(images)).numpy()
        return found


def read(path: Path) -> tuple[Card, Deployed]:
    remedy = "export it anew"
    _require_ours(path, remedy)
    tensors, about = read_tensors(path, remedy)
    if about.keys() == {"experiment", "classes"}:
        raise BadInput(
            f"{path} is the model of a run, as the run keeps it; "
            f"`fedadb export {path.parent} --to model.safetensors` makes one to use"
        )
    card = read_card(about, path)
    # A file of weights must not decide what is imported.
    if own := own_code(card.experiment):
        raise BadInput(f"{path} needs {own}, which is not part of fedadb; export the run to .onnx")
    model = unfilled(config.parse_toml(card.experiment, str(path)), card)
    if card.frozen:
        for layer in batch_layers(model):
            fix(layer, torch.zeros(layer.num_features), torch.ones(layer.num_features))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise Fault(f"{path}: its weights do not fit its experiment; {remedy}") from error
    return card, model


def own_code(experiment: str) -> str | None:
    """The `module:Class` that the model is made by, if it is not one of fedadb's."""
    table = config.parse_toml(experiment, "the experiment")
    names = [table[part]["name"] for part in ("model", "algorithm")]
    return next((name for name in names if ":" in name), None)


def _require_ours(path: Path, remedy: str) -> None:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise Fault(f"{path} is damaged, or no safetensors file ({error}); {remedy}") from error
    if "fedadb" not in metadata:
        raise BadInput(f"{path} is not a model that `fedadb export` wrote")
