"""What anchors tell of single images: how near the nearest is, and who was trained on."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np


def psnr(mse: np.ndarray | float) -> np.ndarray:
    """−10 log₁₀ MSE, for values in [0, 1]; infinite for what is the same."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(mse))


def mean_square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The mean squared difference of each row of a and each row of b."""
    a, b = (m.reshape(len(m), -1).astype(np.float64) for m in (a, b))
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(squares.clip(0) / a.shape[1])


class Likeness(NamedTuple):
    """PSNR in dB. The first is of the worst case: an anchor's nearest real image of its class."""

    nearest: float
    mean: float  # over all images of its class
    class_mean: float  # to the mean image of its class
    real_nearest: float  # of a real image to its nearest other one, the median
    noise: float  # of uniform noise to its nearest real image


def likeness(anchor: np.ndarray, images: np.ndarray, rng: np.random.Generator) -> Likeness:
    """One anchor among the real images of its class, all in [0, 1]."""
    to_anchor = mean_square(anchor[None], images)[0]
    some = rng.choice(len(images), min(100, len(images)), replace=False)
    among = mean_square(images[some], images)
    among[np.arange(len(some)), some] = np.inf  # itself
    noise = mean_square(rng.random((1, *anchor.shape)), images)
    return Likeness(
        nearest=float(psnr(to_anchor.min())),
        mean=float(psnr(to_anchor).mean()),
        class_mean=float(psnr(mean_square(anchor[None], images.mean(0)[None])[0, 0])),
        real_nearest=float(np.median(psnr(among.min(1)))) if len(images) > 1 else float("nan"),
        noise=float(psnr(noise.min())),
    )


class Auc(NamedTuple):
    """The chance that a member's score is above a stranger's, and its 95 % interval."""

    value: float
    low: float
    high: float


def auc(members: np.ndarray, strangers: np.ndarray) -> Auc:
    """Mann and Whitney's estimate, with DeLong's variance."""
    of_member, of_stranger = _below(members, strangers), 1 - _below(strangers, members)
    value = of_member.mean()
    variance = of_member.var(ddof=1) / len(members) + of_stranger.var(ddof=1) / len(strangers)
    half = NormalDist().inv_cdf(0.975) * variance**0.5
    return Auc(float(value), float(max(0, value - half)), float(min(1, value + half)))


def _below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The share of the others that each score is above; those that are equal count half."""
    ranked = np.sort(others)
    below, up_to = (np.searchsorted(ranked, scores, side) for side in ("left", "right"))
    return np.asarray((below + up_to) / (2 * len(others)))
