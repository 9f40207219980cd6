"""How good a model is on a test set."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from fedadb.core.data import Examples
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs, Transform
from fedadb.core.vector import Vector


class Scores(NamedTuple):
    accuracy: float
    loss: float
    class_accuracy: list[float]  # nan for a class without test images


def mixed(images: Examples) -> Examples:
    """The same images in a fixed order that mixes the classes.

    Models with batch statistics see a batch's composition; sorted by class they would do worse.
    """
    order = torch.randperm(len(images.y), generator=Stream(0, ("test order",)).generator())
    return images.rows(order)


@torch.inference_mode()
def evaluate(
    f: Model, w: Vector, test: Examples, transform: Transform | AsIs, batch_size: int
) -> Scores:
    """Accuracy in [0, 1] and mean cross entropy, over batches of a fixed order and size."""
    hits = torch.zeros(f.classes, dtype=torch.float64)
    loss = 0.0
    for images, y in zip(
        torch.split(test.x, batch_size), torch.split(test.y, batch_size), strict=True
    ):
        logits = f(w, transform.plain(images)).logits
        loss += float(F.cross_entropy(logits, y, reduction="sum"))
        hits += torch.bincount(y[logits.argmax(1) == y].cpu(), minlength=f.classes)
    counts = torch.bincount(test.y.cpu(), minlength=f.classes)
    n = len(test.y)
    return Scores(
        accuracy=float(hits.sum()) / n,
        loss=loss / n,
        class_accuracy=[
            h / c if c else math.nan for h, c in zip(hits.tolist(), counts.tolist(), strict=True)
        ],
    )
