"""The figures, as matplotlib draws them: curves, bars and heat maps over methods and settings."""

import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedadb.report.convergence import race
from fedadb.report.groups import Board, colours
from fedadb.report.notes import shortened
from fedadb.report.partition import plain
from fedadb.report.runs import Run
from fedadb.report.statistics import ewma, interval, mean_curve
from fedadb.report.sweeps import draw_sweep, sweeps
from fedadb.storage.files import write_atomically

PICTURES = ("png", "pdf")


def draw_all(board: Board) -> dict[str, Figure]:
    """Every figure that these runs allow, by the name of its files."""
    figures = {"curves": curves(board), "convergence": convergence(board)}
    for i, column in enumerate(board.columns, start=1):
        name = "heatmap" if len(board.columns) == 1 else f"heatmap-{i}"
        figures[name] = heatmap(title(board, column), board.cells(column))
    for key, lines in sweeps(board).items():
        figures[f"sweep-{key}"] = draw_sweep(key, lines, colours(board))
    return figures


def save(figure: Figure, path: Path) -> None:
    """Write the figure under each of the endings, whole or not at all."""
    for ending in PICTURES:
        picture = io.BytesIO()
        figure.savefig(picture, format=ending, dpi=150)
        write_atomically(path.with_name(f"{path.name}.{ending}"), picture.getvalue())


def title(board: Board, column: str) -> str:
    said = shortened(board, column)
    return f"{column} ({said})" if said else column


def curves(board: Board) -> Figure:
    """Accuracy over rounds, a panel a setting: smoothed means, shaded 95 % intervals."""
    colour = colours(board)

    def panel(axes: Axes, column: str) -> None:
        for row, runs in board.cells(column).items():
            mean = ewma(mean_curve([run.accuracy for run in runs]))
            half = interval([ewma(run.accuracy) for run in runs])
            t = range(1, len(mean) + 1)
            axes.plot(t, mean, color=colour[row], label=row, linewidth=1.5)
            if len(runs) > 1:
                low, high = ([m + sign * h for m, h in zip(mean, half, strict=True)]
                             for sign in (-1, 1))  # fmt: skip
                axes.fill_between(t, low, high, color=colour[row], alpha=0.15, linewidth=0)
        axes.set(xlabel="round", ylabel="test accuracy")
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.3)

    return _panels(board, panel)


def convergence(board: Board) -> Figure:
    """Rounds to 45, 65 and 85 % of the best accuracy; a cross where it was not reached."""
    colour = colours(board)

    def panel(axes: Axes, column: str) -> None:
        cells = board.cells(column)
        goals, reached, _ = race(cells)
        width = 0.8 / len(cells)
        for i, (row, needed) in enumerate(reached.items()):
            at = [g + (i - (len(cells) - 1) / 2) * width for g in range(len(goals))]
            axes.bar(at, [n or 0 for n in needed], width, color=colour[row], label=row)
            missed = [x for x, n in zip(at, needed, strict=True) if n is None]
            if missed:
                edge = axes.get_xaxis_transform()
                axes.plot(missed, [0.97] * len(missed), "x", color=colour[row], transform=edge)
        axes.set_xticks(range(len(goals)), [f"to {100 * goal:.0f} %" for goal in goals])
        axes.set(ylabel="rounds", xlabel="× at the top: not reached")
        axes.grid(alpha=0.3, axis="y")

    return _panels(board, panel)


def heatmap(heading: str, cells: Mapping[str, list[Run]]) -> Figure:
    """Each class's accuracy over rounds, of the first seed; light is high, on one scale."""
    n = len(cells)
    inch = 1 / (0.8 + 1.5 * n)  # laid out by hand: of a dozen panels, matplotlib takes seconds
    figure = Figure(figsize=(8, 1 / inch))
    for place, (row, runs) in enumerate(cells.items()):
        axes = figure.add_axes((0.08, (0.55 + 1.5 * (n - 1 - place)) * inch, 0.78, 1.1 * inch))
        by_class = [
            [math.nan if a is None else a for a in of_class]
            for of_class in zip(*(r["class_accuracy"] for r in runs[0].rounds), strict=True)
        ]
        image = axes.imshow(
            by_class,
            aspect="auto",
            interpolation="none",
            cmap="viridis",
            vmin=0,
            vmax=1,
            extent=(0.5, len(runs[0].rounds) + 0.5, len(by_class) - 0.5, -0.5),
        )
        axes.set_title(f"{row}, seed {runs[0].seed}", fontsize=10)
        axes.set_ylabel("class")
        axes.tick_params(labelbottom=place == n - 1)
    axes.set_xlabel("round")
    figure.colorbar(
        image, cax=figure.add_axes((0.89, 0.1, 0.02, 0.8)), label="test accuracy of the class"
    )
    figure.suptitle(plain(heading), y=1 - 0.12 * inch, fontsize=12)
    return figure


def _panels(board: Board, panel: Callable[[Axes, str], None]) -> Figure:
    """A panel a setting, four beside each other at most, and one legend."""
    n = len(board.columns)
    wide = min(n, 4) if n > 2 else n
    high = math.ceil(n / wide)
    figure = Figure(figsize=(max(7, 4 * wide), 0.8 + 3.4 * high), layout="constrained")
    for place, column in enumerate(board.columns, start=1):
        axes = figure.add_subplot(high, wide, place)
        panel(axes, column)
        axes.set_title(plain(title(board, column)), fontsize=11, wrap=True)
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    longest = max(map(len, named))
    beside = max(1, min(6, len(named), int(10 * figure.get_figwidth() / (longest + 6))))
    shown = [label.replace("$", r"\$") for label in named]
    figure.legend(named.values(), shown, loc="outside lower center", ncols=beside, frameon=False)
    return figure
