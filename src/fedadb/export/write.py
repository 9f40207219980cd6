"""From a finished run to one file with its classifier."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import ROUNDS
from fedadb.core.stream import Stream
from fedadb.progress import Progress, no_progress
from fedadb.storage.records import read_records
from fedadb.experiment.stored import Finished, read_run
from fedadb.export import onnxfile, weights
from fedadb.export.card import ENDINGS, Card
from fedadb.export.deployed import Deployed, deployed
from fedadb.export.statistics import batch_layers, freeze

AT_ONCE = 128  # images that are computed together


class Frozen(NamedTuple):
    """What freezing did to the accuracy on the test images."""

    before: float  # as the run recorded it
    after: float


def export(
    directory: Path, to: Path, images: int | None, progress: Progress = no_progress
) -> Frozen | None:
    """Write the deployed classifier of a run; its batch statistics frozen from so many images."""
    require_target(to)
    if to.suffix.lower() == ".onnx":
        onnxfile.require("onnx", "onnxscript", "onnxruntime")
    run = read_run(directory, progress)
    transform, shape = run.world.transform, run.world.f.domain.shape
    channels, height, width = shape
    card = Card(
        experiment=run.experiment.toml(),
        classes=run.world.classes,
        shape=(channels, height, width),
        mean=transform.mean,
        std=transform.std,
        frozen=images or 0,
    )
    model = deployed(run, card)
    if batch_layers(model) and images is None:
        raise BadInput(
            f"{directory}: its model normalises by the batch at hand, so what it says to an image "
            "would depend on the images beside it; fix the statistics with --freeze-statistics "
            "1000, or train with model.norm = 'group' (FedGELA: feature_norm = 'length')"
        )
    if images is not None:
        if not batch_layers(model):
            raise BadInput(
                f"--freeze-statistics {images}: the model of {directory} has none; leave it out"
            )
        freeze(model, calibration(run, images))
    write = onnxfile.write if to.suffix.lower() == ".onnx" else weights.write
    write(to, model, card)
    if images is None:
        return None
    before = read_records(directory / ROUNDS)[-1]["accuracy"]
    return Frozen(before, accuracy(model, run.world.test))


def require_target(to: Path) -> None:
    """What can be told before anything is loaded."""
    if to.suffix.lower() not in ENDINGS:
        raise BadInput(f"--to {to}: must end in {' or '.join(ENDINGS)}")
    if to.is_dir():
        raise BadInput(f"--to {to}: is a directory; name a file")
    if not to.parent.is_dir():
        raise BadInput(f"--to {to}: there is no directory {to.parent}; make it first")
    if to.suffix.lower() == ".safetensors" and (to.parent / ROUNDS).exists():
        raise BadInput(f"--to {to}: lies among a run's own files; choose another directory")


def calibration(run: Finished, images: int) -> list[Tensor]:
    """So many training images, whoever holds them, in batches of about the run's size."""
    if not run.world.shards:
        raise BadInput(f"--freeze-statistics {images}: the images are at the sites, and not here")
    train = run.world.shards[0].examples
    if not 2 <= images <= len(train.y):
        raise BadInput(
            f"--freeze-statistics {images}: must be from 2 to {len(train.y)}, which is how many "
            "training images there are"
        )
    rows = torch.randperm(len(train.y), generator=Stream(0).at("calibration").generator())[:images]
    # Of one size, give or take one: a batch of a single image has no statistics.
    size = max(run.experiment.local.batch_size, 3)
    parts = torch.tensor_split(rows, -(-images // size))
    return [train.x[part].float() / 255 for part in parts]


@torch.inference_mode()
def accuracy(model: Deployed, test: Examples) -> float:
    right = 0
    for x, y in zip(*(torch.split(part, AT_ONCE) for part in test), strict=True):
        right += int((model(x.float() / 255).argmax(1) == y).sum())
    return right / len(test.y)
