"""Exports the classifier of a finished run to one file."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream
from fedadb.experiment.stored import StoredRun, read_run
from fedadb.export.batch_statistics import batch_layers, freeze_statistics
from fedadb.export.classifier import SUFFIXES, ImageClassifier, ModelCard, trained_classifier
from fedadb.export.onnx_file import require_packages, write_onnx
from fedadb.export.safetensors_file import write_safetensors
from fedadb.progress import Progress, no_progress
from fedadb.storage.records import privacy_statement, read_records
from fedadb.storage.run_directory import ROUNDS

BATCH_SIZE = 128  # of the evaluation after freezing


class FrozenAccuracy(NamedTuple):
    """The accuracy on the test images before and after batch statistics were frozen."""

    before: float  # as the run recorded it
    after: float


def export_run(
    directory: Path, to: Path, images: int | None = None, progress: Progress = no_progress
) -> FrozenAccuracy | None:
    """Write the deployed classifier of a run to a file.

    Args:
        directory: The run's directory.
        to: The file; its suffix selects the format.
        images: The number of training images to freeze batch statistics from; None: the model
            must have no batch statistics.
        progress: Reports the loading of the run's data.

    Returns:
        The accuracies before and after freezing, if statistics were frozen.
    """
    require_target(to)
    onnx = to.suffix.lower() == ".onnx"
    if onnx:
        require_packages("onnx", "onnxscript", "onnxruntime")
    run = read_run(directory, progress)
    transform = run.spec.require_images("an exported model")
    channels, height, width = run.spec.shape
    last = (read_records(directory / ROUNDS) or [{}])[-1]  # an unfinished run is refused below
    card = ModelCard(
        experiment=run.experiment.toml(),
        classes=run.spec.classes,
        shape=(channels, height, width),
        mean=transform.mean,
        std=transform.std,
        frozen=images or 0,
        privacy=privacy_statement(last),
    )
    model = trained_classifier(run, card)
    if batch_layers(model) and images is None:
        raise BadInput(
            f"{directory}: its model normalises by the statistics of the batch, so that the "
            "prediction for an image would depend on the other images in its batch; freeze the "
            "statistics with --freeze-statistics 1000, or train with model.norm = 'group' "
            "(FedGELA: feature_norm = 'length')"
        )
    if images is not None:
        if card.privacy:
            raise BadInput(
                f"--freeze-statistics {images}: statistics of training images are not "
                "differentially private, and the run is; train with model.norm = 'group'"
            )
        if not batch_layers(model):
            raise BadInput(
                f"--freeze-statistics {images}: the model of {directory} has no batch statistics; "
                "omit the option"
            )
        freeze_statistics(model, calibration_batches(run, images))
    (write_onnx if onnx else write_safetensors)(to, model, card)
    if images is None:
        return None
    return FrozenAccuracy(last["accuracy"], accuracy(model, run.require_data().test))


def require_target(to: Path) -> None:
    """Raise BadInput if the file cannot be written, before anything is loaded."""
    if to.suffix.lower() not in SUFFIXES:
        raise BadInput(f"--to {to}: must end in {' or '.join(SUFFIXES)}")
    if to.is_dir():
        raise BadInput(f"--to {to}: is a directory; name a file")
    if not to.parent.is_dir():
        raise BadInput(f"--to {to}: the directory {to.parent} does not exist; create it first")
    if to.suffix.lower() == ".safetensors" and (to.parent / ROUNDS).exists():
        raise BadInput(f"--to {to}: {to.parent} is the directory of a run; choose another one")


def calibration_batches(run: StoredRun, images: int) -> list[Tensor]:
    """That many training images of all clients, in batches of about the run's size.

    The images follow from their number alone and are not augmented.
    """
    train = run.require_data().train
    if not 2 <= images <= len(train.y):
        raise BadInput(
            f"--freeze-statistics {images}: must be from 2 to {len(train.y)}, the number of "
            "training images"
        )
    rows = torch.randperm(len(train.y), generator=Stream(0).at("calibration").generator())[:images]
    # The sizes differ by at most one, because a batch of a single image has no statistics.
    size = max(run.experiment.local.batch_size, 3)
    parts = torch.tensor_split(rows, -(-images // size))
    return [train.x[part].float() / 255 for part in parts]


@torch.inference_mode()
def accuracy(model: ImageClassifier, test: Examples) -> float:
    """The share of the images that the model classifies correctly."""
    correct = 0
    for x, y in zip(*(torch.split(part, BATCH_SIZE) for part in test), strict=True):
        correct += int((model(x.float() / 255).argmax(1) == y).sum())
    return correct / len(test.y)
