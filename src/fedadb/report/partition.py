"""Who holds what, as a picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

READABLE = 30  # class names beside each other


def draw_partition(
    counts: Sequence[Sequence[int]], classes: Sequence[str], title: str, path: Path
) -> None:
    """Clients from left to right, classes from top to bottom; the darker, the more rows."""
    by_class = [[held[c] or float("nan") for held in counts] for c in range(len(classes))]
    most = max(max(held) for held in counts)
    figure = Figure(figsize=(9, min(9, 1.6 + 0.28 * len(classes))), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        by_class, aspect="auto", interpolation="none", cmap="YlGnBu", norm=LogNorm(1, most)
    )
    axes.set(xlabel=f"client (of {len(counts)})", title=f"{title}: rows of each class")
    if len(classes) <= READABLE:
        axes.set_yticks(range(len(classes)), classes)
    else:
        axes.set_ylabel("class")
    axes.grid(visible=False)
    figure.colorbar(image, label="rows")
    figure.savefig(path, dpi=150)
