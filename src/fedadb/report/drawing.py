"""What all figures share: axes, line styles, a layout of panels, and saving."""

import io
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedadb.storage.files import write_atomically

PICTURE_FORMATS = ("png", "pdf")

# A curve that coincides with n earlier ones has the n-th style: the gaps show those below it.
LINE_STYLES: tuple[Any, ...] = ("-", (0, (4, 4)), (0, (2, 6)), (0, (1, 9)))


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as PNG and PDF, to `path` with `.png` and `.pdf` appended."""
    for ending in PICTURE_FORMATS:
        save_picture(figure, path.with_name(f"{path.name}.{ending}"))


def save_picture(figure: Figure, path: Path) -> None:
    """Write the figure in the format that the path ends in."""
    picture = io.BytesIO()
    with warnings.catch_warnings():  # the font may lack letters of a name
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    write_atomically(path, picture.getvalue())


def literal(text: str, most: int = 40) -> str:
    """The text for matplotlib, where a dollar sign would start a formula. Long texts are cut."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return short.replace("$", r"\$")


def round_axis(axes: Axes) -> None:
    """Label the horizontal axis as rounds, with ticks at whole numbers."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def line_styles(curves: Sequence[Sequence[float]]) -> list[Any]:
    """A style per curve, such that none hides another that coincides with it."""
    tolerance = 0.005 * max((value for curve in curves for value in curve), default=0)

    def coincide(a: Sequence[float], b: Sequence[float]) -> bool:
        return all(abs(x - y) <= tolerance for x, y in zip(a, b, strict=False))

    below = [
        sum(coincide(curve, earlier) for earlier in curves[:i]) for i, curve in enumerate(curves)
    ]
    return [LINE_STYLES[min(n, len(LINE_STYLES) - 1)] for n in below]


def draw_panels(titles: Sequence[str], draw: Callable[[Axes, int], None]) -> Figure:
    """One panel per title, at most four in a row, and one legend for all of them.

    `draw` gets the axes of a panel and its position among the titles.
    """
    n = len(titles)
    columns = min(n, 4)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(max(7, 4 * columns), 0.8 + 3.4 * rows), layout="constrained")
    for i, title in enumerate(titles):
        axes = figure.add_subplot(rows, columns, i + 1)
        draw(axes, i)
        axes.set_title(title, fontsize=11, wrap=True)
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        drawn, labels = axes.get_legend_handles_labels()
        handles = dict(zip(labels, drawn, strict=True)) | handles
    longest = max(map(len, handles), default=0)
    beside = max(1, min(6, len(handles), int(10 * figure.get_figwidth() / (longest + 6))))
    names = [label.replace("$", r"\$") for label in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=beside, frameon=False)
    return figure
