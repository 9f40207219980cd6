"""Accuracy over the values of one setting, while all others are equal."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedadb.report import paper
from fedadb.report.comparison import Comparison
from fedadb.report.drawing import draw_panels, line_styles, literal
from fedadb.report.labels import dataset_name, distinct_labels, method_names, with_scenario
from fedadb.report.metrics import best_rounds, seed_statistics
from fedadb.report.recorded_runs import RecordedRun

Line = Mapping[float, list[RecordedRun]]  # the runs at each value of the setting


def find_sweeps(comparison: Comparison) -> dict[str, dict[str, Line]]:
    """The numeric settings that vary while all others are equal: for each, lines by label.

    The trials of a search are part of them. A line has only the seeds that all of its values have,
    if there are such: trials mostly have one seed, and what was chosen is run with more.
    """
    runs = [*comparison.all_runs, *comparison.trials]
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
            sweeps[key] = {
                label: _common_seeds(lines[line]) for label, line in zip(labels, long, strict=True)
            }
    return sweeps


def _common_seeds(points: Line) -> Line:
    common = set.intersection(*({run.seed for run in runs} for runs in points.values()))
    if not common:
        return points
    return {value: [run for run in runs if run.seed in common] for value, runs in points.items()}


def draw_sweep(key: str, lines: Mapping[str, Line], colours: Mapping[str, str]) -> Figure:
    """One panel per dataset, one line per method. A ring marks the paper's value, or our default.

    A hollow point is of runs that did not finish, such as trials that were stopped: the five best
    of the rounds that they have.
    """
    panels: dict[str, dict[str, Line]] = {}
    for label, points in lines.items():
        dataset = next(iter(points.values()))[0].experiment["dataset"]
        panels.setdefault(dataset, {})[label.replace(f", dataset={dataset}", "")] = points
    titles = [literal(dataset_name(dataset)) for dataset in panels]

    def draw(axes: Axes, i: int) -> None:
        _draw_lines(axes, key, list(panels.values())[i], colours)

    return draw_panels(titles, draw)


def _draw_lines(
    axes: Axes, key: str, lines: Mapping[str, Line], colours: Mapping[str, str]
) -> None:
    scores_of = {
        label: [
            seed_statistics([100 * best_rounds(run.accuracy) for run in points[value]])
            for value in sorted(points)
        ]
        for label, points in lines.items()
    }
    styles = line_styles([[score.mean for score in scores] for scores in scores_of.values()])
    hollow = ""  # what the axis says about hollow points
    for (label, scores), style in zip(scores_of.items(), styles, strict=True):
        points, values = lines[label], sorted(lines[label])
        axes.errorbar(
            values,
            [score.mean for score in scores],
            [score.deviation for score in scores],
            label=label,
            color=colours.get(label.partition(",")[0]),
            linestyle=style,
            marker="o",
            capsize=3,
        )
        for value, score in zip(values, scores, strict=True):
            if not all(run.finished for run in points[value]):
                axes.plot(value, score.mean, "o", ms=4, color="white", zorder=4)
                hollow = " (hollow: stopped early, or not finished)"
            run = points[value][0]
            if value == paper.reference_value(run, key):
                axes.plot(value, score.mean, "o", ms=11, mfc="none", color="black", zorder=3)
    if is_wide([value for points in lines.values() for value in points]):
        axes.set_xscale("log")
    axes.set(xlabel=f"{key}{hollow}", ylabel="test accuracy (%), best five")
    axes.grid(alpha=0.3)


def is_wide(values: Sequence[float]) -> bool:
    """Whether the values span so much that a logarithmic axis shows them better."""
    return min(values) > 0 and max(values) / min(values) >= 10
