"""Accuracy over the values of one setting, while all others are equal."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fedadb.report import paper
from fedadb.report.comparison import Comparison
from fedadb.report.drawing import line_styles, literal
from fedadb.report.labels import distinct_labels, method_names, with_scenario
from fedadb.report.metrics import best_rounds, seed_statistics
from fedadb.report.recorded_runs import RecordedRun

Line = Mapping[float, list[RecordedRun]]  # the runs at each value of the setting


def find_sweeps(comparison: Comparison) -> dict[str, dict[str, Line]]:
    """The numeric settings that vary while all others are equal: for each, lines by label."""
    runs = comparison.all_runs
    names = method_names(dict.fromkeys(run.algorithm for run in runs))
    sweeps: dict[str, dict[str, Line]] = {}
    for key in dict.fromkeys(key for run in runs for key in run.versioned_settings):
        lines: dict[str, dict[float, list[RecordedRun]]] = {}
        fixed: dict[str, dict[str, Any]] = {}  # the other settings of each line
        for run in runs:
            value = run.versioned_settings.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                rest = {k: v for k, v in run.versioned_settings.items() if k != key}
                fixed[repr(rest)] = with_scenario(rest)
                lines.setdefault(repr(rest), {}).setdefault(value, []).append(run)
        long = [line for line, points in lines.items() if len(points) > 1]
        if long:
            methods = [names[fixed[line]["algorithm.name"]] for line in long]
            labels = distinct_labels(methods, [fixed[line] for line in long])
            sweeps[key] = {label: lines[line] for label, line in zip(labels, long, strict=True)}
    return sweeps


def draw_sweep(key: str, lines: Mapping[str, Line], colours: Mapping[str, str]) -> Figure:
    """One line per method. A ring marks the paper's value of the setting."""
    legend_rows = -(-len(lines) // 3)
    figure = Figure(figsize=(8, 4 + 0.25 * legend_rows), layout="constrained")
    axes = figure.subplots()
    scores_of = {
        label: [
            seed_statistics([100 * best_rounds(run.accuracy) for run in points[value]])
            for value in sorted(points)
        ]
        for label, points in lines.items()
    }
    styles = line_styles([[score.mean for score in scores] for scores in scores_of.values()])
    for (label, scores), style in zip(scores_of.items(), styles, strict=True):
        points, values = lines[label], sorted(lines[label])
        axes.errorbar(
            values,
            [score.mean for score in scores],
            [score.deviation for score in scores],
            label=literal(label),
            color=colours.get(label.partition(",")[0]),
            linestyle=style,
            marker="o",
            capsize=3,
        )
        for value, score in zip(values, scores, strict=True):
            run = points[value][0]
            if value == paper.settings_for(run.experiment["dataset"], run.algorithm).get(key):
                axes.plot(value, score.mean, "o", ms=11, mfc="none", color="black", zorder=3)
    if is_wide([value for points in lines.values() for value in points]):
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel="test accuracy (%), best five rounds")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def is_wide(values: Sequence[float]) -> bool:
    """Whether the values span so much that a logarithmic axis shows them better."""
    return min(values) > 0 and max(values) / min(values) >= 10
