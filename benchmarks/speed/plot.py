"""The comparison as a figure.

python -m benchmarks.speed.plot speed.json speed.png
"""

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw one panel per model.

    Args:
        results: What `benchmarks.speed` writes: per model, the machine's peak in GFLOP/s, the GFLOP
            of a round, and the seconds per round of each simulator's turns.
        path: The figure to write.
    """
    bars = [len(comparison["seconds"]) for comparison in results.values()]
    figure = Figure(figsize=(8, sum(1.6 + 0.3 * n for n in bars)), layout="constrained")
    panels = figure.subplots(len(results), squeeze=False, height_ratios=bars)[:, 0]
    for axes, (model, comparison) in zip(panels, results.items(), strict=True):
        peak = comparison["peak"]
        limit = peak / comparison["gflop"] if peak else None
        draw_bars(axes, comparison["seconds"], limit)
        if peak and limit:
            draw_limit(axes, limit, f"peak: {peak:.0f} GFLOP/s")
        axes.set_title(model, loc="left", fontweight="bold")
    figure.savefig(path, dpi=150)


def draw_bars(axes: Axes, simulators: Mapping[str, list[float]], limit: float | None) -> None:
    """One bar per simulator, at the median of its turns; each turn is a dot."""
    for name, seconds in simulators.items():
        ours, floor = name.startswith("fedadb"), name.startswith("floor")
        color = "tab:orange" if ours else "lightgrey" if floor else "tab:blue"
        speed, turns = 1 / statistics.median(seconds), [1 / s for s in seconds]
        axes.barh(name, speed, color=color)
        axes.plot(turns, [name] * len(turns), "k.", markersize=4)
        share = f" ({speed / limit:.0%})" if limit else ""
        axes.annotate(
            f"{speed:#.3g}{share}",
            (max(turns), name),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    fastest = 1 / min(s for seconds in simulators.values() for s in seconds)
    axes.set_xlim(0, max(1.02 * (limit or 0), 1.2 * fastest))
    axes.set_xlabel("rounds per second (more is better)")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def draw_limit(axes: Axes, limit: float, label: str) -> None:
    """The speed at the machine's peak, and an axis of shares of it."""
    axes.axvline(limit, color="tab:red", linestyle="--")
    axes.annotate(
        label,
        (limit, 0.5),
        xycoords=("data", "axes fraction"),
        xytext=(-5, 0),
        textcoords="offset points",
        color="tab:red",
        rotation=90,
        ha="right",
        va="center",
    )
    shares = axes.secondary_xaxis("top")
    shares.set_xticks([limit * fifth / 5 for fifth in range(6)])
    shares.xaxis.set_major_formatter(PercentFormatter(limit))
    shares.set_xlabel("share of the machine's peak")


if __name__ == "__main__":
    source, target = sys.argv[1:]
    plot(json.loads(Path(source).read_text()), Path(target))
