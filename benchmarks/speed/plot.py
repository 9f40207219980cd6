"""The contest as a picture."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure


def plot(results: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """A bar a contestant: seconds a round, the median over turns, and each turn as a dot."""
    figure = Figure(figsize=(8, 0.5 + 2.8 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), squeeze=False)[:, 0]
    for axes, (model, contestants) in zip(panels, results.items(), strict=True):
        for name, seconds in contestants.items():
            ours, bare = name.startswith("fedadb"), name.startswith("floor")
            color = "tab:orange" if ours else "lightgrey" if bare else "tab:blue"
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
        axes.set(xlabel="seconds a round (less is better)", title=model)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
