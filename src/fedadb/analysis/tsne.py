"""Anchors among real features in a plane, by t-SNE, early and late in a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

from fedadb.analysis.anchors import compare_features, early_and_late
from fedadb.analysis.inputs import Numbers, Options, Results
from fedadb.analysis.panels import early_and_late_panels
from fedadb.experiment.stored import StoredRun

MAX_NAMED = 20  # classes that fit into the legend


def require(run: StoredRun, options: Options) -> None:
    early_and_late(run)
    run.require_data()


def measure(run: StoredRun, options: Options) -> Numbers:
    numbers = {}
    for when, (t, kept) in early_and_late(run).items():
        features = compare_features(run, kept)
        real, anchors = embed(features.real, features.anchors)
        numbers[when] = {
            "round": t,
            "real": np.round(real, 2).tolist(),
            "class": features.label.tolist(),
            "anchors": np.round(anchors, 2).tolist(),
            "anchor_class": features.anchor_class.tolist(),
        }
    return numbers


def draw(results: Results, classes: Sequence[str]) -> Figure:
    figure = early_and_late_panels(results, _scatter, 4.2)
    colours: Any = figure.axes[0].collections[0]
    named = list(classes)[:MAX_NAMED]
    handles: Any = [
        Line2D([], [], linestyle="", marker="o", color=colours.to_rgba(c, alpha=1))
        for c in range(len(named))
    ]
    figure.legend(handles, named, loc="outside right center", frameon=False)
    return figure


def _scatter(axes: Axes, numbers: Numbers) -> None:
    real, anchors = np.array(numbers["real"]), np.array(numbers["anchors"])
    label, anchor_class = numbers["class"], numbers["anchor_class"]
    # A class has the same colour in all panels.
    scale: Any = {"cmap": "tab20", "vmin": 0, "vmax": max(label)}
    axes.scatter(real[:, 0], real[:, 1], s=3, c=label, alpha=0.5, **scale)
    stars: Any = {"s": 130, "marker": "*", "edgecolors": "black"}
    axes.scatter(anchors[:, 0], anchors[:, 1], c=anchor_class, **stars, **scale)
    axes.set(xticks=[], yticks=[])


def embed(real: np.ndarray, anchors: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Both in one plane: standardised, 50 principal components, t-SNE with perplexity 30."""
    joint = StandardScaler().fit_transform(np.concatenate([real, anchors]))
    joint = PCA(min(50, *joint.shape), random_state=seed).fit_transform(joint)
    perplexity = min(30.0, (len(joint) - 1) / 3)
    flat = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(joint)
    return flat[: len(real)], flat[len(real) :]
