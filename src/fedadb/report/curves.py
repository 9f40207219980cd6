"""Accuracy over rounds, as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure

from fedadb.report.statistics import ewma


def draw_accuracy(runs: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """A line a run: smoothed (EWMA 0.2), with the rounds themselves faint behind it."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, accuracy in runs.items():
        rounds = range(1, len(accuracy) + 1)
        (line,) = axes.plot(rounds, ewma(accuracy), label=name, linewidth=2)
        axes.plot(rounds, accuracy, color=line.get_color(), alpha=0.25, linewidth=1)
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
