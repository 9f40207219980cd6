"""What analyses read from a run: its records, samples of its images, and their features."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.core.data import Batch, Examples
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.experiment.stored import StoredRun
from fedadb.progress import Progress, no_progress
from fedadb.storage.records import Record, read_records
from fedadb.storage.run_directory import ROUNDS

SAMPLE = 2000  # training images in a sample, unless the user gives a number

Numbers = dict[str, Any]
"""The result of an analysis of one run."""

Results = Mapping[str, Numbers]
"""The results of an analysis by the runs' titles."""


class Options(NamedTuple):
    """What the user chooses about analyses."""

    images: int | None = None  # size of the training sample; None: 2000, or all if there are fewer
    progress: Progress = no_progress


def rounds_of(run: StoredRun) -> list[Record]:
    """The run's records: at least one."""
    records = read_records(run.directory / ROUNDS)
    if not records:
        raise BadInput(f"{run.directory} has no finished round yet; run it first")
    return records


def training_sample(run: StoredRun, images: int | None) -> Tensor:
    """The rows of a class-balanced sample of the training images."""
    labels = run.require_data().train.y
    if images is not None and images > len(labels):
        raise BadInput(f"--images {images}: there are {len(labels)} training images")
    n = images or min(SAMPLE, len(labels))
    return balanced_rows(labels, n, range(run.f.classes), "training")


def balanced_rows(labels: Tensor, n: int, classes: Sequence[int], kind: str) -> Tensor:
    """At least n rows in random order: the same number of each class, or all that it has.

    `kind` names the data in errors.
    """
    per_class = -(-n // len(classes))
    chosen = []
    for c in classes:
        rows = torch.nonzero(labels == c).flatten()
        if not len(rows):
            raise BadInput(f"class {c} has no {kind} images, but every class is compared")
        order = torch.randperm(len(rows), generator=Stream(0).at("stratified", c).generator())
        chosen.append(rows[order[:per_class]])
    rows = torch.cat(chosen)
    return rows[torch.randperm(len(rows), generator=Stream(0).at("mixed").generator())]


def normalised_batches(run: StoredRun, examples: Examples, rows: Tensor) -> list[Batch]:
    """The rows in batches of the run's own size, without augmentation."""
    normalise, size = run.spec.transform.normalise, run.experiment.local.batch_size
    return [
        Batch(normalise(examples.x[part]), examples.y[part]) for part in torch.split(rows, size)
    ]


@torch.no_grad()
def features_of(run: StoredRun, w: Vector, batches: Sequence[Batch]) -> Tensor:
    """φ(x) of all batches, one row per image."""
    return torch.cat([run.f(w, batch.x).features for batch in batches])
