"""Accuracy over the values of one setting, where all others are equal."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from fedadb.report import paper
from fedadb.report.groups import Board, labels, method_name, with_scenario
from fedadb.report.partition import plain
from fedadb.report.runs import Run
from fedadb.report.statistics import best_rounds, over_seeds

Line = Mapping[float, list[Run]]


def sweeps(board: Board) -> dict[str, dict[str, Line]]:
    """Settings that are numbers and vary alone: for each, lines over its values, by name."""
    runs = [run for at in board.at.values() for run in at]
    found: dict[str, dict[str, Line]] = {}
    for key in dict.fromkeys(key for run in runs for key in run.settings):
        lines: dict[str, dict[float, list[Run]]] = {}
        others: dict[str, dict[str, Any]] = {}
        for run in runs:
            value = run.settings.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                rest = {k: v for k, v in run.settings.items() if k != key}
                others[repr(rest)] = with_scenario(rest)
                lines.setdefault(repr(rest), {}).setdefault(value, []).append(run)
        long = [which for which, points in lines.items() if len(points) > 1]
        if long:
            names = labels([others[which] for which in long], method_name)
            found[key] = {n: lines[which] for n, which in zip(names, long, strict=True)}
    return found


def draw_sweep(key: str, lines: Mapping[str, Line], colours: Mapping[str, str]) -> Figure:
    """A line a method; a ring: the value that we use otherwise."""
    legend_rows = -(-len(lines) // 3)
    figure = Figure(figsize=(8, 4 + 0.25 * legend_rows), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        values = sorted(points)
        scores = [over_seeds([best_rounds(run.accuracy) for run in points[v]]) for v in values]
        means, deviations = [s.mean for s in scores], [s.deviation for s in scores]
        look: dict[str, Any] = {
            "color": colours.get(name.partition(",")[0]),
            "marker": "o",
            "capsize": 3,
        }
        axes.errorbar(values, means, deviations, label=plain(name), **look)
        for value, mean in zip(values, means, strict=True):
            if value == _usual(key, points[value][0]):
                axes.plot(value, mean, "o", ms=11, mfc="none", color="black", zorder=3)
    all_values = [value for points in lines.values() for value in points]
    if min(all_values) > 0 and max(all_values) / min(all_values) >= 20:
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel="test accuracy, best five rounds")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _usual(key: str, run: Run) -> Any:
    group, _, name = key.rpartition(".")
    known = paper.settings().get(group, {})
    return (known.get(run.algorithm, {}) if group == "algorithm" else known).get(name)
