"""The training loss around the deployed weights, on the plane of two directions."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from fedadb.analysis.hessian import mean_loss, used
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector

REACH, POINTS = 0.5, 21


def axis(reach: float = REACH, points: int = POINTS) -> np.ndarray:
    """From −reach to reach, with the middle at nought exactly."""
    half = points // 2
    return reach * np.arange(-half, half + 1) / half


def landscape(
    f: Model,
    w: Vector,
    batches: Sequence[Batch],
    vectors: np.ndarray,
    steps: np.ndarray,
    advance: Callable[[int], None] = lambda n: None,
) -> np.ndarray:
    """L(w + a·v₁ + b·v₂); the vectors are columns; a row for each a, a column for each b."""
    free = used(f, w)
    directions = []
    for v in vectors.T:
        whole = torch.zeros_like(w.flat)
        whole[free] = torch.as_tensor(v, dtype=w.flat.dtype)
        directions.append(whole)
    losses = np.zeros((len(steps), len(steps)))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            moved = w.flat + float(a) * directions[0] + float(b) * directions[1]
            losses[i, j] = mean_loss(f, Vector(moved, w.layout), batches)
            advance(1)
    return losses
