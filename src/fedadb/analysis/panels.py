"""Layouts of figures that several analyses use."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedadb.analysis.inputs import Numbers, Results


def side_by_side(n: int) -> tuple[Figure, list[Any]]:
    """A row of n panels."""
    figure = Figure(figsize=(max(5.0, 4.2 * n), 3.4), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def early_and_late_panels(
    results: Results, draw: Callable[[Axes, Numbers], None], height: float
) -> Figure:
    """One row per run: the early round on the left, the late one on the right."""
    figure = Figure(figsize=(9, height * len(results)), layout="constrained")
    rows = figure.subplots(len(results), 2, squeeze=False)
    for panels, (title, numbers) in zip(rows, results.items(), strict=True):
        for axes, when in zip(panels, ("early", "late"), strict=True):
            draw(axes, numbers[when])
            axes.set_title(f"{title}, round {numbers[when]['round']}")
    return figure


def class_ticks(classes: Sequence[str]) -> tuple[list[int], list[str]]:
    """Positions and names of the classes; of more than twenty, every tenth."""
    positions = list(range(0, len(classes), 1 if len(classes) <= 20 else 10))
    return positions, [classes[c] for c in positions]
