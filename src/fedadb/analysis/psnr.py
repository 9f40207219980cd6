"""Similarity of anchors to single training images: the peak signal-to-noise ratio (PSNR)."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from fedadb.algorithms.fedadb import FedADB
from fedadb.analysis.anchors import as_pixels, read_kept_anchors
from fedadb.analysis.inputs import Numbers, Options, Results
from fedadb.core.stream import Stream
from fedadb.experiment.stored import StoredRun

MAX_DRAWN = 20  # anchors of a run in the figure


class Similarity(NamedTuple):
    """PSNR in dB of one anchor and the real images of its class, with two references."""

    nearest: float  # to the nearest image: the worst case
    mean: float  # mean over all images
    class_mean: float  # to the mean image
    real_nearest: float  # reference: of a real image to the nearest other one (median)
    noise: float  # reference: of the noise that the anchor started from to its nearest image


def require(run: StoredRun, options: Options) -> None:
    run.spec.require_images("psnr")
    read_kept_anchors(run)
    run.require_data()


def measure(run: StoredRun, options: Options) -> Numbers:
    """Compare every anchor of the last kept round with the training images of its class."""
    t, kept = list(read_kept_anchors(run).items())[-1]
    train, normalise = run.require_data().train, run.spec.transform.normalise
    rng = np.random.default_rng(0)
    classes = kept.anchors.c.tolist()
    algorithm = run.experiment.algorithm
    assert isinstance(algorithm, FedADB), "no other has kept anchors"
    # From the address of the run's own round, so it is the noise that its anchors started from.
    noise = algorithm.noise(run.f, len(classes), Stream(run.experiment.seed).at("server", t))
    similarities, pictures = [], []
    anchors, starts = as_pixels(run, kept.anchors.x), as_pixels(run, noise)
    for anchor, start, c in zip(anchors, starts, classes, strict=True):
        rows = torch.nonzero(train.y == c).flatten()
        real = as_pixels(run, normalise(train.x[rows]))
        similarities.append(similarity(anchor, real, start, rng))
        nearest = real[mean_square(anchor[None], real)[0].argmin()]
        pictures.append((anchor, nearest))
    means = {name: fmean(getattr(s, name) for s in similarities) for name in Similarity._fields}
    return {
        "round": t,
        **means,
        "by_anchor": [s._asdict() for s in similarities],
        "anchor_class": classes,
        "pictures": pictures,
    }


def draw(results: Results, classes: Sequence[str]) -> Figure:
    """Each anchor above its nearest training image."""
    most = max(min(MAX_DRAWN, len(numbers["pictures"])) for numbers in results.values())
    figure = Figure(figsize=(max(5.0, 1.1 * most), 3.2 * len(results)), layout="constrained")
    strips = figure.subfigures(len(results), 1, squeeze=False)[:, 0]
    for strip, (title, numbers) in zip(strips, results.items(), strict=True):
        strip.suptitle(f"{title}, round {numbers['round']}", fontsize=10)
        panels = strip.subplots(2, most, squeeze=False)
        panels[0, 0].set_ylabel("anchor")
        panels[1, 0].set_ylabel("nearest")
        for axes in panels.flat:
            axes.set(xticks=[], yticks=[])
        drawn = zip(numbers["pictures"], numbers["by_anchor"], numbers["anchor_class"], strict=True)
        for i, (pair, psnr_of, c) in enumerate(list(drawn)[:most]):
            for axes, image in zip(panels[:, i], pair, strict=True):
                axes.imshow(image.transpose(1, 2, 0), cmap="gray", vmin=0, vmax=1)
            panels[0, i].set_title(classes[c], fontsize=8)
            panels[1, i].set_xlabel(f"{psnr_of['nearest']:.1f} dB", fontsize=8)
    return figure


def similarity(
    anchor: np.ndarray, images: np.ndarray, noise: np.ndarray, rng: np.random.Generator
) -> Similarity:
    """Compare an anchor, and noise, with the real images of its class; values are in [0, 1]."""
    to_anchor = mean_square(anchor[None], images)[0]
    some = rng.choice(len(images), min(100, len(images)), replace=False)
    among_real = mean_square(images[some], images)
    among_real[np.arange(len(some)), some] = np.inf  # an image is not its own neighbour
    return Similarity(
        nearest=float(psnr(to_anchor.min())),
        mean=float(psnr(to_anchor).mean()),
        class_mean=float(psnr(mean_square(anchor[None], images.mean(0)[None])[0, 0])),
        real_nearest=float(np.median(psnr(among_real.min(1)))) if len(images) > 1 else float("nan"),
        noise=float(psnr(mean_square(noise[None], images).min())),
    )


def psnr(mse: np.ndarray | float) -> np.ndarray:
    """−10 log₁₀ MSE, for values in [0, 1]; infinite for equal images."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(mse))


def mean_square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The mean squared difference of each row of a and each row of b."""
    a, b = (m.reshape(len(m), -1).astype(np.float64) for m in (a, b))
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(squares.clip(0) / a.shape[1])
