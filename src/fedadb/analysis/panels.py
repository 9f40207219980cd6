"""The analyses as pictures: several runs side by side, on one scale."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

Found = Mapping[str, Any]  # what an analysis found of each run, by the run's name


def side_by_side(n: int, height: float = 3.4, **settings: Any) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(max(5.0, 4.2 * n), height), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False, **settings)[0])


def _ticks(classes: Sequence[str]) -> tuple[list[int], list[str]]:
    """A place and a name for each class, or for every tenth if they are many."""
    places = list(range(0, len(classes), 1 if len(classes) <= 20 else 10))
    return places, [classes[c] for c in places]


def heatmap(found: Found, classes: Sequence[str]) -> Figure:
    figure, panels = side_by_side(len(found))
    for axes, (name, numbers) in zip(panels, found.items(), strict=True):
        by_class = np.array(numbers["class_accuracy"], dtype=float).T
        frame = (0.5, by_class.shape[1] + 0.5, by_class.shape[0] - 0.5, -0.5)
        image = axes.imshow(
            by_class, aspect="auto", interpolation="none", vmin=0, vmax=1, extent=frame
        )
        axes.set(title=name, xlabel="round")
        axes.set_yticks(*_ticks(classes))
    figure.colorbar(image, ax=panels, label="test accuracy of the class")
    return figure


def forgetting(found: Found, classes: Sequence[str]) -> Figure:
    figure, (left, right) = side_by_side(2)
    clients = all("in_local" in numbers for numbers in found.values())
    for name, numbers in found.items():
        over_time = [np.nan if v is None else v for v in numbers["over_time"]]
        (line,) = left.plot(range(1, len(over_time) + 1), over_time, label=name)
        if clients:
            for key, style in (("in_local", "--"), ("out_local", ":")):
                rounds = range(1, len(over_time) + 1)
                label = f"{name}, {key}"
                right.plot(rounds, numbers[key], style, color=line.get_color(), label=label)
        else:
            lost = [np.nan if v is None else v for v in numbers["by_class"]]
            right.plot(lost, "o", color=line.get_color(), label=name)
    left.set(xlabel="round", ylabel="forgetting so far", title="the global model")
    if clients:
        right.set(xlabel="round", ylabel="accuracy", title="clients before the mean")
    else:
        right.set(ylabel="lost in the end", title="by class")
        right.set_xticks(*_ticks(classes), rotation=60, ha="right", rotation_mode="anchor")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    return figure


def hessian(found: Found, classes: Sequence[str]) -> Figure:
    figure, (axes,) = side_by_side(1)
    for name, numbers in found.items():
        label = f"{name}: λ₁ {numbers['lambda1']:.3g}, λ₁/λ₅ {numbers['anisotropy']:.2f}"
        places = range(1, len(numbers["eigenvalues"]) + 1)
        axes.plot(places, numbers["eigenvalues"], "o-", label=label)
        axes.set_xticks(places)
    axes.set(xlabel="eigenvalue", ylabel="curvature")
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.legend(frameon=False)
    return figure


def landscape(found: Found, classes: Sequence[str]) -> Figure:
    """Contours above, surfaces below, all on one scale of the loss."""
    n = len(found)
    figure = Figure(figsize=(max(5.0, 4.2 * n), 7.5), layout="constrained")
    losses = [np.array(numbers["loss"]) for numbers in found.values()]
    low, high = min(loss.min() for loss in losses), max(loss.max() for loss in losses)
    levels = np.linspace(low, high, 21)
    for i, ((name, numbers), loss) in enumerate(zip(found.items(), losses, strict=True), start=1):
        a, b = np.meshgrid(numbers["steps"], numbers["steps"], indexing="ij")
        flat: Axes = figure.add_subplot(2, n, i)
        shown = flat.contourf(a, b, loss, levels=levels)
        flat.plot(0, 0, "r+")
        flat.set_aspect("equal")
        flat.set(title=f"{name}: {numbers['centre']:.3f} at the centre", xlabel="a·v₁")
        flat.set_ylabel("b·v₂")
        solid: Any = figure.add_subplot(2, n, n + i, projection="3d")
        solid.plot_surface(a, b, loss, cmap="viridis", vmin=low, vmax=high)
        solid.set_zlim(low, high)
        solid.set(xlabel="a·v₁", ylabel="b·v₂", xticks=(-0.5, 0, 0.5), yticks=(-0.5, 0, 0.5))
    figure.colorbar(shown, ax=figure.axes, label="training loss", shrink=0.6, format="%.1f")
    return figure


def tsne(found: Found, classes: Sequence[str]) -> Figure:
    figure = _two_times(found, _scatter, 4.2)
    colours: Any = figure.axes[0].collections[0]
    shown = list(enumerate(classes))[:20]
    handles: Any = [
        Line2D([], [], linestyle="", marker="o", color=colours.to_rgba(c, alpha=1))
        for c, _ in shown
    ]
    figure.legend(handles, [name for _, name in shown], loc="outside right center", frameon=False)
    return figure


def _scatter(axes: Axes, numbers: Mapping[str, Any]) -> None:
    real, anchors = np.array(numbers["real"]), np.array(numbers["anchors"])
    of, of_anchor = numbers["class"], numbers["anchor_class"]
    scale: Any = {"cmap": "tab20", "vmin": 0, "vmax": max(of)}  # a class has the same in all panels
    axes.scatter(real[:, 0], real[:, 1], s=3, c=of, alpha=0.5, **scale)
    stars: Any = {"s": 130, "marker": "*", "edgecolors": "black"}
    axes.scatter(anchors[:, 0], anchors[:, 1], c=of_anchor, **stars, **scale)
    axes.set(xticks=[], yticks=[])


def pca(found: Found, classes: Sequence[str]) -> Figure:
    figure = _two_times(found, partial(_correlations, classes=classes), 5.2)
    figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label="Pearson, in three components")
    return figure


def _correlations(axes: Axes, numbers: Mapping[str, Any], classes: Sequence[str]) -> None:
    axes.imshow(numbers["pearson_3"], cmap="RdBu_r", vmin=-1, vmax=1)
    means = f"mean: own {numbers['diagonal_3']:.2f}, others {numbers['off_diagonal_3']:.2f}"
    axes.set(xlabel=f"centre of class\n{means}", ylabel="anchor")
    axes.set_xticks(*_ticks(classes), rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(*_ticks(classes))


def _two_times(
    found: Found, draw: Callable[[Axes, Mapping[str, Any]], None], height: float
) -> Figure:
    """A row a run: early on the left, late on the right."""
    figure = Figure(figsize=(9, height * len(found)), layout="constrained")
    rows = figure.subplots(len(found), 2, squeeze=False)
    for panels, (name, numbers) in zip(rows, found.items(), strict=True):
        for axes, when in zip(panels, ("early", "late"), strict=True):
            draw(axes, numbers[when])
            axes.set_title(f"{name}, round {numbers[when]['round']}")
    return figure


def psnr(found: Found, classes: Sequence[str]) -> Figure:
    """Each anchor above its nearest real image, twenty of a run at most."""
    most = max(min(20, len(numbers["pictures"])) for numbers in found.values())
    figure = Figure(figsize=(max(5.0, 1.1 * most), 3.2 * len(found)), layout="constrained")
    strips = figure.subfigures(len(found), 1, squeeze=False)[:, 0]
    for strip, (name, numbers) in zip(strips, found.items(), strict=True):
        strip.suptitle(f"{name}, round {numbers['round']}", fontsize=10)
        panels = strip.subplots(2, most, squeeze=False)
        panels[0, 0].set_ylabel("anchor")
        panels[1, 0].set_ylabel("nearest")
        for axes in panels.flat:
            axes.set(xticks=[], yticks=[])
        pairs = zip(numbers["pictures"], numbers["by_anchor"], numbers["anchor_class"], strict=True)
        for i, (pair, one, c) in enumerate(list(pairs)[:most]):
            for axes, image in zip(panels[:, i], pair, strict=True):
                axes.imshow(image.transpose(1, 2, 0), cmap="gray", vmin=0, vmax=1)
            panels[0, i].set_title(classes[c], fontsize=8)
            panels[1, i].set_xlabel(f"{one['nearest']:.1f} dB", fontsize=8)
    return figure


def membership(found: Found, classes: Sequence[str]) -> Figure:
    figure, (axes,) = side_by_side(1)
    for i, (name, numbers) in enumerate(found.items()):
        for j, key in enumerate(("pixels", "features", "loss")):
            value, low, high = numbers[key].values()
            axes.errorbar(j + 0.1 * i, value, [[value - low], [high - value]], marker="o",
                          capsize=4, color=f"C{i}", label=name if j == 0 else None)  # fmt: skip
    axes.axhline(0.5, color="grey", linewidth=0.8)
    axes.set_xticks(range(3), ["anchor, in pixels", "anchor, in features", "the model's loss"])
    axes.set(ylabel="AUC of telling who was trained on")
    axes.legend(frameon=False)
    return figure
