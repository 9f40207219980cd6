"""Membership inference: do anchors, or the model's loss, reveal which images were trained on?

Each attack scores training images (members) and test images (non-members). The area under the ROC
curve is 0.5 if the scores reveal nothing, and 1 if they reveal everything.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from fedadb.algorithms.fedadb import KeptAnchors
from fedadb.analysis.anchors import PER_CLASS, anchor_features, read_kept_anchors
from fedadb.analysis.inputs import (
    Numbers,
    Options,
    Results,
    balanced_rows,
    features_of,
    normalised_batches,
    rounds_of,
)
from fedadb.analysis.panels import side_by_side
from fedadb.core.data import Batch, Examples
from fedadb.experiment.stored import StoredRun

ATTACKS = {  # what each one scores an image by
    "pixels": "distance to anchor,\nin pixels",
    "features": "distance to anchor,\nin features",
    "loss": "the model's loss",
}


def require(run: StoredRun, options: Options) -> None:
    read_kept_anchors(run)
    _ = run.w
    rounds_of(run)
    run.require_data()


def measure(run: StoredRun, options: Options) -> Numbers:
    """The AUC of each attack, on the same number of images of each class from both sets."""
    kept = list(read_kept_anchors(run).values())[-1]
    train, test = participants_images(run), run.require_data().test
    classes = run.f.classes
    counts = torch.stack([torch.bincount(y, minlength=classes) for y in (train.y, test.y)])
    fewest = counts.min(0).values
    shared = fewest.nonzero().flatten().tolist()  # the clients that took part may lack a class
    n = min(PER_CLASS, int(fewest[shared].min())) * len(shared)
    members, others = (
        attack_scores(
            run, kept, normalised_batches(run, examples, balanced_rows(examples.y, n, shared, kind))
        )
        for examples, kind in ((train, "training"), (test, "test"))
    )
    return {"images": n} | {name: auc(members[name], others[name])._asdict() for name in ATTACKS}


def participants_images(run: StoredRun) -> Examples:
    """The training images of the clients that took part in some round."""
    data = run.require_data()
    seen = {k for record in rounds_of(run) for k in record["clients"]}
    return data.train.rows(torch.cat([data.shards[k].rows for k in sorted(seen)]))


def attack_scores(
    run: StoredRun, kept: KeptAnchors, batches: Sequence[Batch]
) -> dict[str, np.ndarray]:
    """A score of each image by each attack; higher means that it was more likely trained on."""
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    other_class = y[:, None] != kept.anchors.c

    def closeness(points: Tensor, anchors: Tensor) -> np.ndarray:
        """Minus the distance to the nearest anchor of the same class."""
        distance = torch.cdist(points, anchors).masked_fill(other_class, torch.inf)
        return -distance.min(1).values.numpy()

    with torch.no_grad():
        losses = [
            F.cross_entropy(run.f(run.w, batch.x).logits, batch.y, reduction="none")
            for batch in batches
        ]
    return {
        "pixels": closeness(x.flatten(1), kept.anchors.x.flatten(1)),
        "features": closeness(features_of(run, kept.w, batches), anchor_features(run, kept)),
        "loss": -torch.cat(losses).numpy(),
    }


def draw(results: Results, classes: Sequence[str]) -> Figure:
    figure, (axes,) = side_by_side(1)
    for i, (title, numbers) in enumerate(results.items()):
        for j, name in enumerate(ATTACKS):
            value, low, high = numbers[name].values()
            axes.errorbar(
                j + 0.1 * i,
                value,
                [[value - low], [high - value]],
                marker="o",
                capsize=4,
                color=f"C{i}",
                label=title if j == 0 else None,
            )
    axes.axhline(0.5, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(ATTACKS)), list(ATTACKS.values()))
    axes.set(ylabel="AUC of membership inference")
    axes.legend(frameon=False)
    return figure


class Auc(NamedTuple):
    """The probability that a member scores above a non-member, with its 95 % interval."""

    value: float
    low: float
    high: float


def auc(members: np.ndarray, others: np.ndarray) -> Auc:
    """The Mann-Whitney estimate, with DeLong's variance."""
    of_members, of_others = _share_below(members, others), 1 - _share_below(others, members)
    value = of_members.mean()
    variance = of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(others)
    half = NormalDist().inv_cdf(0.975) * variance**0.5
    return Auc(float(value), float(max(0, value - half)), float(min(1, value + half)))


def _share_below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """For each score, the share of the others that are lower; equal ones count half."""
    ranked = np.sort(others)
    below, up_to = (np.searchsorted(ranked, scores, side) for side in ("left", "right"))
    return np.asarray((below + up_to) / (2 * len(others)))
