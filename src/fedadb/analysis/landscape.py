"""The training loss around the deployed weights, along two eigenvectors of its Hessian."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedadb.analysis import hessian
from fedadb.analysis.inputs import Numbers, Options, Results, normalised_batches, training_sample
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector
from fedadb.experiment.stored import StoredRun

REACH, POINTS = 0.5, 21  # half the side of the square, and points per side


def require(run: StoredRun, options: Options) -> None:
    hessian.require(run, options)


def measure(run: StoredRun, options: Options) -> Numbers:
    """The loss on a square of 21 × 21 points, and at its centre."""
    f, w, sample = run.f, run.w, training_sample(run, options.images)
    batches, steps = normalised_batches(run, run.require_data().train, sample), axis()
    directions = hessian.measure(run, options)["vectors"]
    with options.progress("loss landscape", len(steps) ** 2, "points") as advance:
        losses = loss_plane(f, w, batches, directions, steps, advance)
    return {
        "steps": steps.tolist(),
        "loss": losses.tolist(),
        "centre": hessian.mean_loss(f, w, batches),
    }


def draw(results: Results, classes: Sequence[str]) -> Figure:
    """Contours above, surfaces below, with one scale of the loss for all runs."""
    n = len(results)
    figure = Figure(figsize=(max(5.0, 4.2 * n), 7.5), layout="constrained")
    losses = [np.array(numbers["loss"]) for numbers in results.values()]
    low, high = min(loss.min() for loss in losses), max(loss.max() for loss in losses)
    levels = np.linspace(low, high, 21)
    for i, ((title, numbers), loss) in enumerate(
        zip(results.items(), losses, strict=True), start=1
    ):
        a, b = np.meshgrid(numbers["steps"], numbers["steps"], indexing="ij")
        contours: Axes = figure.add_subplot(2, n, i)
        filled = contours.contourf(a, b, loss, levels=levels)
        contours.plot(0, 0, "r+")
        contours.set_aspect("equal")
        contours.set(title=f"{title}: {numbers['centre']:.3f} at the centre", xlabel="a·v₁")
        contours.set_ylabel("b·v₂")
        surface: Any = figure.add_subplot(2, n, n + i, projection="3d")
        surface.plot_surface(a, b, loss, cmap="viridis", vmin=low, vmax=high)
        surface.set_zlim(low, high)
        surface.set(xlabel="a·v₁", ylabel="b·v₂", xticks=(-0.5, 0, 0.5), yticks=(-0.5, 0, 0.5))
    figure.colorbar(filled, ax=figure.axes, label="training loss", shrink=0.6, format="%.1f")
    return figure


def axis(reach: float = REACH, points: int = POINTS) -> np.ndarray:
    """From −reach to reach; the middle is exactly zero."""
    half = points // 2
    return reach * np.arange(-half, half + 1) / half


def loss_plane(
    f: Model,
    w: Vector,
    batches: Sequence[Batch],
    vectors: np.ndarray,
    steps: np.ndarray,
    advance: Callable[[int], None] = lambda points: None,
) -> np.ndarray:
    """L(w + a·v₁ + b·v₂), with one row per a and one column per b.

    The columns of `vectors` are v₁ and v₂, in the space of the deployed weights.
    """
    deployed = hessian.deployed_weights(f, w)
    directions = []
    for v in vectors.T:
        direction = torch.zeros_like(w.flat)
        direction[deployed] = torch.as_tensor(v, dtype=w.flat.dtype)
        directions.append(direction)
    losses = np.zeros((len(steps), len(steps)))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            moved = w.flat + float(a) * directions[0] + float(b) * directions[1]
            losses[i, j] = hessian.mean_loss(f, Vector(moved, w.layout), batches)
            advance(1)
    return losses
