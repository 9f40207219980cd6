"""Exported classifiers as safetensors files: the weights, and the model card."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedadb.core.errors import BadInput, Fault
from fedadb.experiment.toml_tables import parse_toml
from fedadb.export.batch_statistics import batch_layers, set_statistics
from fedadb.export.classifier import (
    ImageClassifier,
    ModelCard,
    card_from_strings,
    untrained_classifier,
)
from fedadb.storage.tensorfile import read_tensors, write_tensors

REMEDY = "export it again"
MISFIT = f"its weights do not fit its experiment; {REMEDY}"


def write_safetensors(path: Path, model: ImageClassifier, card: ModelCard) -> None:
    if own := own_class(card.experiment):
        raise BadInput(
            f"--to {path}: {own} is your own code, without which weights are of no use; "
            "export to .onnx, which contains the computation itself"
        )
    write_tensors(path, model.state_dict(), card.to_strings())


class SafetensorsModel:
    """The model of a safetensors file, computed by torch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.card, self._classifier = read_safetensors(path)

    @torch.inference_mode()
    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            computed: NDArray[np.float32] = self._classifier(torch.from_numpy(images)).numpy()
        except RuntimeError as error:  # the body's features are others than the head's
            raise Fault(f"{self._path}: {MISFIT}") from error
        return computed


def read_safetensors(path: Path) -> tuple[ModelCard, ImageClassifier]:
    _require_fedadb_file(path)
    tensors, metadata = read_tensors(path, REMEDY)
    if metadata.keys() <= {"experiment", "classes", "privacy"}:
        raise BadInput(
            f"{path} contains the weights of a run; make a usable model of them with "
            f"`fedadb export {path.parent} --to model.safetensors`"
        )
    card = card_from_strings(metadata, path)
    if own := own_class(card.experiment):  # a file of weights must not decide what is imported
        raise BadInput(f"{path} needs {own}, which is not part of fedadb; export the run to .onnx")
    features = _count_features(tensors, len(card.classes))
    if features == 0:
        raise Fault(f"{path}: {MISFIT}")
    model = untrained_classifier(parse_toml(card.experiment, str(path)), card, features)
    if card.frozen:  # the layers need statistics before theirs can be loaded
        for layer in batch_layers(model):
            empty = torch.empty(layer.num_features, device="meta")
            set_statistics(layer, empty, empty)
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise Fault(f"{path}: {MISFIT}") from error
    return card, model


def _count_features(tensors: Mapping[str, Tensor], classes: int) -> int:
    """How many features the head in the file takes: its matrix has a row or a column per class."""
    sizes = [x.numel() for name, x in tensors.items() if name.startswith("head.") and x.ndim == 2]
    return max(sizes, default=0) // classes


def own_class(experiment: str) -> str | None:
    """The user's own `module:Class` among model and algorithm, if there is one."""
    table = parse_toml(experiment, "the experiment")
    parts = [table.get(part) for part in ("model", "algorithm")]
    given = [part.get("name") for part in parts if isinstance(part, dict)]
    names = [name for name in given if isinstance(name, str)]
    if len(names) < len(parts):
        raise BadInput(f"the experiment in the file has no model or no algorithm; {REMEDY}")
    return next((name for name in names if ":" in name), None)


def _require_fedadb_file(path: Path) -> None:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise Fault(f"{path} is damaged or not a safetensors file ({error}); {REMEDY}") from error
    if "fedadb" not in metadata:
        raise BadInput(f"{path} was not written by `fedadb export`")
