"""Who holds what, as a picture."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

READABLE = 30  # class names beside each other


def draw_partition(
    counts: Sequence[Sequence[int]], classes: Sequence[str], title: str, path: Path
) -> None:
    """Clients from left to right, classes from top to bottom; the darker, the more rows."""
    by_class = [[held[c] or float("nan") for held in counts] for c in range(len(classes))]
    most = max(2, *(max(held) for held in counts))  # a scale needs two ends
    figure = Figure(figsize=(9, min(9, 1.6 + 0.28 * len(classes))), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        by_class, aspect="auto", interpolation="none", cmap="YlGnBu", norm=LogNorm(1, most)
    )
    axes.set(xlabel=f"client (of {len(counts)})", title=f"{plain(title)}: rows of each class")
    if len(classes) <= READABLE:
        axes.set_yticks(range(len(classes)), [plain(name) for name in classes])
    else:
        axes.set_ylabel("class")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, label="rows")
    with warnings.catch_warnings():  # of letters that the font does not have
        warnings.simplefilter("ignore")
        figure.savefig(path, dpi=150)


def plain(name: str) -> str:
    """The name as text: a dollar sign would begin a formula. Long ones end in dots."""
    short = name if len(name) <= 40 else f"{name[:39]}…"
    return short.replace("$", r"\$")
