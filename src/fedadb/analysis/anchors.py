"""Reads the anchors that a FedADB run kept, and compares them with real images."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedadb.algorithms.fedadb import FedADB, KeptAnchors
from fedadb.analysis.inputs import balanced_rows, features_of, normalised_batches
from fedadb.core.errors import BadInput
from fedadb.core.packing import unpack
from fedadb.experiment.stored import StoredRun
from fedadb.storage.run_directory import kept_files
from fedadb.storage.tensorfile import read_tensors

PER_CLASS = 200  # real images of each class that anchors are compared with


def generates_anchors(run: StoredRun) -> bool:
    algorithm = run.experiment.algorithm
    return isinstance(algorithm, FedADB) and algorithm.generate


def read_kept_anchors(run: StoredRun) -> dict[int, KeptAnchors]:
    """The kept broadcasts by round, in order, with their anchors as inputs of the model."""
    if not generates_anchors(run):
        name = run.experiment.table()["algorithm"]["name"]
        raise BadInput(
            f"{run.directory}: {name} generates no anchors; FedADB with generate = true does"
        )
    by_round = {}
    for t, path in kept_files(run.directory).items():
        tensors, _ = read_tensors(path, "delete it to analyse the run without it")
        kept = unpack(KeptAnchors, tensors, run.f.layout)
        x = run.f.domain.dequantise(kept.anchors.x)
        by_round[t] = kept._replace(anchors=kept.anchors._replace(x=x))
    if not by_round:
        raise BadInput(
            f"{run.directory} kept no anchors; run it with keep_broadcasts = 'auto', or a list of "
            "rounds such as [1, 50]"
        )
    return by_round


def early_and_late(run: StoredRun) -> dict[str, tuple[int, KeptAnchors]]:
    """Two kept rounds: the one nearest to a twentieth of all rounds, and the last one."""
    kept = read_kept_anchors(run)
    if len(kept) < 2:
        raise BadInput(
            f"{run.directory} kept the anchors of one round, but two are compared; "
            "keep_broadcasts lists the rounds to keep"
        )
    *others, late = kept
    early = min(others, key=lambda t: abs(t - run.experiment.rounds / 20))
    return {"early": (early, kept[early]), "late": (late, kept[late])}


class Features(NamedTuple):
    """Features of real test images and of anchors, by the model that was sent with the anchors."""

    real: np.ndarray
    label: np.ndarray  # class of each real image
    anchors: np.ndarray
    anchor_class: np.ndarray


def compare_features(run: StoredRun, kept: KeptAnchors) -> Features:
    test, classes = run.require_data().test, run.f.classes
    n = min(PER_CLASS * classes, len(test.y))
    rows = balanced_rows(test.y, n, range(classes), "test")
    real = features_of(run, kept.w, normalised_batches(run, test, rows))
    anchors = anchor_features(run, kept)
    return Features(real.numpy(), test.y[rows].numpy(), anchors.numpy(), kept.anchors.c.numpy())


@torch.no_grad()
def anchor_features(run: StoredRun, kept: KeptAnchors) -> Tensor:
    """φ(x̃) of all anchors, computed in one batch as on the server."""
    return run.f(kept.w, kept.anchors.x).features


def as_pixels(run: StoredRun, x: Tensor) -> np.ndarray:
    """Inputs of the model as images with values in [0, 1]."""
    low, high = run.f.domain.low, run.f.domain.high
    return ((x - low) / (high - low)).clamp(0, 1).numpy()
