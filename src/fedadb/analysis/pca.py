"""Correlation of anchors with the centres of real classes, early and late in a run.

Pearson's correlation is computed in three principal components, as in the paper, and in all
dimensions.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

from fedadb.analysis.anchors import compare_features, early_and_late
from fedadb.analysis.inputs import Numbers, Options, Results
from fedadb.analysis.panels import class_ticks, early_and_late_panels
from fedadb.experiment.stored import StoredRun


class Alignment(NamedTuple):
    """Correlations of anchors (rows) with class centres (columns)."""

    pearson: np.ndarray
    diagonal: float  # mean over anchors with their own class
    off_diagonal: float  # mean over anchors with the other classes
    nearest: float  # share of anchors that correlate most with their own class


def require(run: StoredRun, options: Options) -> None:
    early_and_late(run)
    run.require_data()


def measure(run: StoredRun, options: Options) -> Numbers:
    numbers, classes = {}, run.f.classes
    for when, (t, kept) in early_and_late(run).items():
        real, label, anchors, anchor_class = compare_features(run, kept)
        centres_3, anchors_3 = three_components(real, label, anchors, classes)
        in_three = align(anchors_3, anchor_class, centres_3)
        in_all = align(anchors, anchor_class, class_centres(real, label, classes))
        numbers[when] = {
            "round": t,
            "centres": centres_3.tolist(),
            "anchors": anchors_3.tolist(),
            **{f"{name}_3": value for name, value in _as_numbers(in_three).items()},
            **_as_numbers(in_all),
        }
    return numbers


def _as_numbers(alignment: Alignment) -> Numbers:
    return {**alignment._asdict(), "pearson": alignment.pearson.round(4).tolist()}


def draw(results: Results, classes: Sequence[str]) -> Figure:
    figure = early_and_late_panels(results, partial(_correlations, classes=classes), 5.2)
    label = "Pearson correlation in three components"
    figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label=label)
    return figure


def _correlations(axes: Axes, numbers: Numbers, classes: Sequence[str]) -> None:
    axes.imshow(numbers["pearson_3"], cmap="RdBu_r", vmin=-1, vmax=1)
    means = f"own {numbers['diagonal_3']:.2f}, others {numbers['off_diagonal_3']:.2f}"
    axes.set(xlabel=f"centre of class\nmean: {means}", ylabel="anchor")
    axes.set_xticks(*class_ticks(classes), rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(*class_ticks(classes))


def class_centres(features: np.ndarray, label: np.ndarray, classes: int) -> np.ndarray:
    """The mean features of each class."""
    return np.stack([features[label == c].mean(0) for c in range(classes)])


def three_components(
    real: np.ndarray, label: np.ndarray, anchors: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Class centres and anchors in the first three principal components of the real features."""
    pca = PCA(3, random_state=0).fit(real)
    return pca.transform(class_centres(real, label, classes)), pca.transform(anchors)


def align(anchors: np.ndarray, anchor_class: np.ndarray, centres: np.ndarray) -> Alignment:
    """Pearson's correlation of each anchor with each centre, over their coordinates."""
    a, b = (m - m.mean(1, keepdims=True) for m in (anchors, centres))
    pearson = (a @ b.T) / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    own = np.zeros_like(pearson, dtype=bool)
    own[np.arange(len(anchors)), anchor_class] = True
    nearest = (pearson.argmax(1) == anchor_class).mean()
    return Alignment(
        pearson, float(pearson[own].mean()), float(pearson[~own].mean()), float(nearest)
    )
