"""The figures of a report: curves, rounds to targets, class accuracy, and partitions."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedadb.report.comparison import Comparison
from fedadb.report.convergence import measure_convergence
from fedadb.report.drawing import draw_panels, line_styles, literal, round_axis, save_picture
from fedadb.report.labels import method_colours
from fedadb.report.metrics import ewma, interval, mean_curve
from fedadb.report.notes import rounds_deviation
from fedadb.report.personal import KINDS, client_curve
from fedadb.report.rank_figure import draw_ranks
from fedadb.report.ranks import rank_methods
from fedadb.report.recorded_runs import RecordedRun
from fedadb.report.sweeps import draw_sweep, find_sweeps

MANY_CLASSES = 30  # more names do not fit beside each other


def draw_all(comparison: Comparison) -> dict[str, Figure]:
    """Every figure that these runs have numbers for, by the name of its files."""
    figures = {"curves": draw_curves(comparison), "convergence": draw_convergence(comparison)}
    settings = comparison.settings
    for i, setting in enumerate(settings, start=1):
        name = "heatmap" if len(settings) == 1 else f"heatmap-{i}"
        title = literal(" ".join(_title_lines(comparison, setting)), most=80)
        figures[name] = draw_heatmap(title, comparison.by_method(setting))
    if ranks := rank_methods(comparison):
        figures["ranks"] = draw_ranks(ranks, method_colours(comparison.methods))
    if personal := draw_personal(comparison):
        figures["personal"] = personal
    for key, lines in find_sweeps(comparison).items():
        figures[f"sweep-{key}"] = draw_sweep(key, lines, method_colours(comparison.methods))
    return figures


def _title_lines(comparison: Comparison, setting: str) -> list[str]:
    deviation = rounds_deviation(comparison, setting)
    return [setting, f"({deviation})"] if deviation else [setting]


def _panel_titles(comparison: Comparison) -> list[str]:
    """One title per setting; remarks have a line of their own."""
    return [
        "\n".join(literal(line) for line in _title_lines(comparison, setting))
        for setting in comparison.settings
    ]


def draw_curves(comparison: Comparison) -> Figure:
    """Accuracy over rounds, one panel per setting: smoothed means and 95 % intervals."""
    colours = method_colours(comparison.methods)

    def draw(axes: Axes, i: int) -> None:
        runs = comparison.by_method(comparison.settings[i])
        smooth = {m: [ewma(_percent(run.accuracy)) for run in seeds] for m, seeds in runs.items()}
        means = {m: mean_curve(curves) for m, curves in smooth.items()}
        styles = line_styles(list(means.values()))
        for (method, mean), style in zip(means.items(), styles, strict=True):
            t = range(1, len(mean) + 1)
            axes.plot(t, mean, color=colours[method], label=method, linewidth=1.5, linestyle=style)
            if len(smooth[method]) > 1:
                half = interval(smooth[method])
                low = [m - h for m, h in zip(mean, half, strict=True)]
                high = [m + h for m, h in zip(mean, half, strict=True)]
                axes.fill_between(t, low, high, color=colours[method], alpha=0.15, linewidth=0)
        round_axis(axes)
        axes.set_ylabel("test accuracy (%)")
        axes.set_ylim(0, 100)
        axes.grid(alpha=0.3)

    return draw_panels(_panel_titles(comparison), draw)


def draw_convergence(comparison: Comparison) -> Figure:
    """The rounds to each target, one panel per setting; a cross where it is not reached."""
    colours = method_colours(comparison.methods)

    def draw(axes: Axes, i: int) -> None:
        targets, rounds, _, _ = measure_convergence(comparison.by_method(comparison.settings[i]))
        if not targets:
            axes.text(0.5, 0.5, "no target is above chance accuracy", ha="center")
            axes.set(xticks=[], yticks=[])
            return
        width = 0.8 / len(rounds)
        for j, (method, needed) in enumerate(rounds.items()):
            x = [k + (j - (len(rounds) - 1) / 2) * width for k in range(len(targets))]
            heights = [n or 0 for n in needed.values()]
            axes.bar(x, heights, width, color=colours[method], label=method)
            missed = [at for at, n in zip(x, needed.values(), strict=True) if n is None]
            if missed:
                top = axes.get_xaxis_transform()
                axes.plot(missed, [0.97] * len(missed), "x", color=colours[method], transform=top)
        axes.set_xticks(range(len(targets)), [f"to {100 * a:.0f} %" for a in targets.values()])
        axes.set(ylabel="rounds", xlabel="× at the top: not reached")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(y=0.1)  # room for the crosses
        axes.grid(alpha=0.3, axis="y")

    return draw_panels(_panel_titles(comparison), draw)


def draw_heatmap(title: str, runs: Mapping[str, list[RecordedRun]]) -> Figure:
    """The accuracy of each class over rounds, one panel per method, of its first seed."""
    n = len(runs)
    inch = 1 / (0.8 + 1.5 * n)
    figure = Figure(figsize=(8, 1 / inch))  # a constrained layout of many panels takes seconds
    for i, (method, seeds) in enumerate(runs.items()):
        axes = figure.add_axes((0.08, (0.55 + 1.5 * (n - 1 - i)) * inch, 0.78, 1.1 * inch))
        by_class = [
            [math.nan if a is None else 100 * a for a in accuracy]
            for accuracy in zip(*seeds[0].class_accuracy, strict=True)
        ]
        image = axes.imshow(
            by_class,
            aspect="auto",
            interpolation="none",
            cmap="viridis",
            vmin=0,
            vmax=100,
            extent=(0.5, len(seeds[0].rounds) + 0.5, len(by_class) - 0.5, -0.5),
        )
        axes.set_title(literal(f"{method}, seed {seeds[0].seed}"), fontsize=10)
        round_axis(axes)
        axes.set_ylabel("class")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        if i < n - 1:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
    scale = figure.add_axes((0.89, 0.1, 0.02, 0.8))
    figure.colorbar(image, cax=scale, label="test accuracy of the class (%)")
    figure.suptitle(title, y=1 - 0.12 * inch, fontsize=12)
    return figure


def draw_personal(comparison: Comparison) -> Figure | None:
    """Accuracy over clients, from the worst, one panel per setting and kind of personal model.

    The clients of all seeds are one curve. None if no run has personal models.
    """
    panels = [
        (setting, kind, curves)
        for setting in comparison.settings
        for kind in KINDS
        if (curves := _client_curves(comparison, setting, kind))
    ]
    if not panels:
        return None
    colours = method_colours(comparison.methods)

    def draw(axes: Axes, i: int) -> None:
        curves = panels[i][2]
        axes.axvspan(0, 10, color="grey", alpha=0.15, linewidth=0)  # the worst tenth
        styles = line_styles(list(curves.values()))
        for (method, y), style in zip(curves.items(), styles, strict=True):
            x = [100 * (k + 0.5) / len(y) for k in range(len(y))]
            axes.plot(x, y, color=colours[method], label=method, linewidth=1.5, linestyle=style)
        axes.set(xlabel="clients, from the worst (%)", ylabel="accuracy of the client (%)")
        axes.set(xlim=(0, 100), ylim=(-2, 102))
        axes.grid(alpha=0.3)

    titles = [f"{literal(setting)}\n{KINDS[kind]}" for setting, kind, _ in panels]
    return draw_panels(titles, draw)


def _client_curves(comparison: Comparison, setting: str, kind: str) -> dict[str, list[float]]:
    runs = comparison.by_method(setting)
    return {m: curve for m, seeds in runs.items() if (curve := client_curve(seeds, kind))}


def draw_partition(
    counts: Sequence[Sequence[int]], classes: Sequence[str], title: str, path: Path
) -> None:
    """Write a picture of how many rows of each class every client holds."""
    by_class = [[row[c] or math.nan for row in counts] for c in range(len(classes))]
    most = max(2, *(max(row) for row in counts))  # a colour scale needs two ends
    figure = Figure(figsize=(9, min(9, 1.6 + 0.28 * len(classes))), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        by_class, aspect="auto", interpolation="none", cmap="YlGnBu", norm=LogNorm(1, most)
    )
    axes.set(xlabel=f"client (of {len(counts)})", title=f"{literal(title)}: rows of each class")
    if len(classes) <= MANY_CLASSES:
        axes.set_yticks(range(len(classes)), [literal(name) for name in classes])
    else:
        axes.set_ylabel("class")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, label="rows")
    save_picture(figure, path)


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]
