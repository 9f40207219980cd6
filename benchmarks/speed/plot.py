"""The comparison as a figure."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure


def plot(results: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """One bar per simulator: the median over turns of seconds per round; each turn is a dot."""
    figure = Figure(figsize=(8, 0.5 + 2.8 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), squeeze=False)[:, 0]
    for axes, (model, simulators) in zip(panels, results.items(), strict=True):
        for name, seconds in simulators.items():
            ours, floor = name.startswith("fedadb"), name.startswith("floor")
            color = "tab:orange" if ours else "lightgrey" if floor else "tab:blue"
            middle = statistics.median(seconds)
            axes.barh(name, middle, color=color)
            axes.plot(seconds, [name] * len(seconds), "k.", markersize=4)
            axes.annotate(
                f"{middle:.2f}",
                (max(seconds), name),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
            )
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set(xlabel="seconds per round (less is better)", title=model)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
