"""The figures of the docs: accuracy over rounds, heat maps, and hyperparameters."""

from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evidence import sweeps
from evidence.curves import class_curves, curves_file
from evidence.organamnist import DEVICE, SILO, STUDIES, methods_in_order
from evidence.results import Results, has, study_results
from evidence.rows import row_identity, rows_so_far
from fedadb.analysis import heatmap
from fedadb.datasets.medmnist import ORGANS
from fedadb.report.drawing import draw_panels, line_styles, round_axis, save_picture
from fedadb.report.labels import METHODS, method_colours
from fedadb.report.metrics import ewma, interval, mean_curve

ON_THE_HEAT_MAP = ("fedavg", "fedlmd", "fedsol", "fedadb")  # the paper's
SHADED = (METHODS["fedavg"], METHODS["fedadb"])  # the intervals of eleven would fill the picture


def write_figures(results: Path) -> list[Path]:
    """Draw what there are rows for."""
    written = []
    for name in STUDIES:
        study = study_results(results, name)
        if any(run.curve for run in study.runs):
            written.append(results / f"{name}.png")
            save_picture(draw_curves(study), written[-1])
        if classes := class_accuracy(results, name):
            written.append(results / f"{name}-classes.png")
            save_picture(heatmap.draw(classes, ORGANS), written[-1])
    swept = sweeps.all_sweeps(results)
    if any(run.row for run in swept.runs):
        for name, settings in sweeps.FIGURES.items():
            written.append(results / f"{name}.png")
            save_picture(sweeps.draw(swept, settings), written[-1])
    return written


def draw_curves(study: Results) -> Figure:
    """Smoothed means over seeds, two with 95 % intervals; one panel per scenario that has run."""
    with_curves = {run["scenario"] for run in study.runs if run.curve}
    scenarios = [name for name in (DEVICE, SILO) if name in with_curves]
    methods = {name: METHODS[name] for name in methods_in_order(study)}
    colours = method_colours(list(methods.values()))

    def draw(axes: Axes, i: int) -> None:
        curves = {
            label: [
                [100 * a for a in ewma(run.curve)]
                for run in study.cell(has(algorithm=name, scenario=scenarios[i])).runs
                if run.curve
            ]
            for name, label in methods.items()
        }
        drawn = {label: seeds for label, seeds in curves.items() if seeds}
        means = [mean_curve(seeds) for seeds in drawn.values()]
        for (label, seeds), mean, style in zip(
            drawn.items(), means, line_styles(means), strict=True
        ):
            t, colour = range(1, len(mean) + 1), colours[label]
            axes.plot(t, mean, color=colour, label=label, linewidth=1.5, linestyle=style)
            if label not in SHADED or len(seeds) < 3:  # that of two seeds would fill it too
                continue
            half = interval(seeds)
            low = [m - h for m, h in zip(mean, half, strict=True)]
            high = [m + h for m, h in zip(mean, half, strict=True)]
            axes.fill_between(t, low, high, color=colour, alpha=0.15, linewidth=0)
        round_axis(axes)
        axes.set(ylabel="test accuracy (%)", ylim=(0, 100))
        axes.grid(alpha=0.3)

    return draw_panels(scenarios, draw)


def class_accuracy(results: Path, name: str) -> dict[str, dict[str, list[list[float | None]]]]:
    """Rounds × classes of the first seed, cross-device, by method."""
    path = curves_file(results / f"{name}.csv")
    curves = {row_identity(one): one for one in rows_so_far(path)}
    classes: dict[str, dict[str, list[list[float | None]]]] = {}
    for run in study_results(results, name).runs:
        wanted = run["algorithm"] in ON_THE_HEAT_MAP and run["scenario"] == DEVICE
        curve = curves.get(row_identity(run.row)) if run.row and wanted else None
        if curve and curve["class_accuracy"]:
            by_round = [list(of_round) for of_round in zip(*class_curves(curve), strict=True)]
            classes[METHODS[run["algorithm"]]] = {"class_accuracy": by_round}
    return classes


def image(results: Path, *, name: str, text: str) -> str:
    """The figure as an image of a page, once it has been drawn."""
    return f"![{text}]({name}.png)\n" if (results / f"{name}.png").exists() else ""


TEXTS = {
    **dict.fromkeys(STUDIES, "Smoothed test accuracy over rounds, mean of the seeds"),
    **{
        f"{study}-classes": "Accuracy of each class over rounds, cross-device, seed 0"
        for study in STUDIES
    },
    "hyperparameters": "Accuracy over local epochs, learning rates and anchors per class",
    "anchor-generation": "Accuracy over the settings of anchor generation",
}
TABLES = {f"figure-{name}": partial(image, name=name, text=text) for name, text in TEXTS.items()}
