"""Robust means of the updates Δ_1 … Δ_m: pure functions of tensors in float64.

An update may have millions of numbers, so the rules read them in pieces of shape (m, some
coordinates). A rule by coordinate takes one piece. A rule that needs distances takes all pieces, an
Iterable that can be read repeatedly; a list with one piece will do.

Weights are the number of rows of each reply, or None if all replies count alike.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

Pieces = Iterable[Tensor]


def mean(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ p_k Δ_k."""
    if weights is None:
        return x.mean(0)
    return weights @ x / weights.sum()


def median(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The median of each coordinate; of an even number, the mean of the two middle ones.

    By weights it is the smallest value at which the sum of the weights reaches half.
    """
    values, order = x.sort(dim=0)
    if weights is None:  # torch.median is the lower one of the two
        m = len(x)
        return (values[(m - 1) // 2] + values[m // 2]) / 2
    reached = weights[order].cumsum(0) >= weights.sum() / 2
    first = reached.to(torch.uint8).argmax(0, keepdim=True)
    return values.gather(0, first)[0]


def trimmed_mean(x: Tensor, f: int, weights: Tensor | None = None) -> Tensor:
    """Of each coordinate, the mean without the f lowest and the f highest values."""
    if f == 0:  # the order of a sum changes its last bits
        return mean(x, weights)
    values, order = x.sort(dim=0)
    kept = values[f : len(x) - f]
    if weights is None:
        return kept.mean(0)
    p = weights[order[f : len(x) - f]]
    return (p * kept).sum(0) / p.sum(0)


def squared_distances(pieces: Pieces) -> Tensor:
    """‖Δ_i − Δ_j‖² of each pair, as an m × m matrix.

    Not from inner products: one reply of 1e30 would take all digits from the other distances.
    """
    exact = "donot_use_mm_for_euclid_dist"
    return _sum(torch.cdist(x, x, compute_mode=exact).square() for x in pieces)


def krum_scores(squared: Tensor, f: int) -> Tensor:
    """Of each reply, the sum of its squared distances to the m − f − 2 nearest others."""
    m = len(squared)
    others = squared.clone().fill_diagonal_(math.inf)
    return others.sort(dim=1).values[:, : m - f - 2].sum(1)


def lowest(scores: Tensor, count: int) -> Tensor:
    """The positions of the lowest scores, in order; of equal ones, the first."""
    return scores.argsort(stable=True)[:count].sort().values


def neighbour_mixing(squared: Tensor, f: int) -> Tensor:
    """NNM as a matrix: row i has the weights of the m − f replies nearest to i, itself included."""
    m = len(squared)
    own_first = squared.clone().fill_diagonal_(-1)  # also among equal replies
    nearest = own_first.argsort(dim=1, stable=True)[:, : m - f]
    mixing = torch.zeros_like(squared)
    return mixing.scatter_(1, nearest, 1 / (m - f))


def distances(pieces: Pieces, v: list[Tensor]) -> Tensor:
    """‖Δ_k − v‖ of each reply."""
    return _sum((x - part).square().sum(1) for x, part in zip(pieces, v, strict=True)).sqrt()


def norms(pieces: Pieces) -> Tensor:
    """‖Δ_k‖ of each reply."""
    return _sum(x.square().sum(1) for x in pieces).sqrt()


def geometric_median(
    pieces: Pieces,
    v: list[Tensor],
    weights: Tensor | None = None,
    nu: float = 1e-6,
    steps: int = 100,
    tolerance: float = 1e-6,
) -> list[Tensor]:
    """The point with the smallest sum of distances to the updates, by Weiszfeld's steps from v.

    Distances below nu medians of ‖Δ_k‖ count as that long, so that a step never divides by zero.
    It stops when a step changes v by less than `tolerance` of its norm.
    """
    shortest = max(nu * float(median(norms(pieces))), torch.finfo(torch.float64).tiny)
    for _ in range(steps):
        inverse = 1 / distances(pieces, v).clamp(min=shortest)
        p = inverse if weights is None else weights * inverse
        after = [mean(x, p) for x in pieces]
        change, length = (math.sqrt(_squared(many)) for many in (_differences(after, v), after))
        v = after
        if change <= tolerance * length:
            break
    return v


def centred_clip(
    pieces: Pieces,
    v: list[Tensor],
    tau: float | None = None,
    weights: Tensor | None = None,
    steps: int = 1,
) -> list[Tensor]:
    """Centred clipping: v + Σ p_k (Δ_k − v) min(1, τ / ‖Δ_k − v‖), repeated.

    Without τ it is the median of ‖Δ_k − v‖ in each step.
    """
    for _ in range(steps):
        lengths = distances(pieces, v)
        limit = float(median(lengths)) if tau is None else tau
        scale = torch.where(lengths > limit, limit / lengths, torch.ones_like(lengths))
        v = [
            part + mean(scale[:, None] * (x - part), weights)
            for x, part in zip(pieces, v, strict=True)
        ]
    return v


def _sum(terms: Iterable[Tensor]) -> Tensor:
    first, *others = terms
    for term in others:
        first = first + term
    return first


def _differences(many: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [a - b for a, b in zip(many, others, strict=True)]


def _squared(many: list[Tensor]) -> float:
    return sum(float(part.square().sum()) for part in many)
