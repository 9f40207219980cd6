"""Anchors among real features: t-SNE to look at, principal components and Pearson to count."""

from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler


class Alignment(NamedTuple):
    """How anchors (rows) go with the centres of real classes (columns)."""

    pearson: np.ndarray
    diagonal: float  # mean of an anchor with its own class
    off_diagonal: float
    nearest: float  # share of anchors that correlate most with their own class


def tsne(real: np.ndarray, anchors: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Both in one plane: standardised, 50 principal components, perplexity 30."""
    joint = StandardScaler().fit_transform(np.concatenate([real, anchors]))
    joint = PCA(min(50, *joint.shape), random_state=seed).fit_transform(joint)
    perplexity = min(30.0, (len(joint) - 1) / 3)
    flat = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(joint)
    return flat[: len(real)], flat[len(real) :]


def centres(features: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    return np.stack([features[labels == c].mean(0) for c in range(classes)])


def components(
    real: np.ndarray, labels: np.ndarray, anchors: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The classes' centres and the anchors in three principal components of the real features."""
    pca = PCA(3, random_state=0).fit(real)
    return pca.transform(centres(real, labels, classes)), pca.transform(anchors)


def align(anchors: np.ndarray, anchor_class: np.ndarray, middle: np.ndarray) -> Alignment:
    """Pearson's correlation of each anchor with each centre, over their coordinates."""
    a, b = (m - m.mean(1, keepdims=True) for m in (anchors, middle))
    pearson = (a @ b.T) / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    own = np.zeros_like(pearson, dtype=bool)
    own[np.arange(len(anchors)), anchor_class] = True
    nearest = (pearson.argmax(1) == anchor_class).mean()
    return Alignment(
        pearson, float(pearson[own].mean()), float(pearson[~own].mean()), float(nearest)
    )
