"""What the hyperparameters of FedADB and of anchor generation change: the paper's two figures."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evidence.markdown import table
from evidence.results import Results, Run, study_results
from fedadb.report.drawing import draw_panels
from fedadb.report.labels import METHODS, method_colours

HYPERPARAMETERS = {
    "local.epochs": "local epochs",
    "local.lr": "learning rate",
    "algorithm.anchors_per_class": "anchors per class",
}
GENERATION = {
    "algorithm.eta": "η",
    "algorithm.steps": "I",
    "algorithm.lam": "λ",
    "algorithm.sigma": "σ",
}
SWEPT = HYPERPARAMETERS | GENERATION
FIGURES = {"hyperparameters": HYPERPARAMETERS, "anchor-generation": GENERATION}


def all_sweeps(results: Path) -> Results:
    return study_results(results, "hyperparameters-organamnist", "hyperparameters")


def sweep(results: Path, *, key: str) -> str:
    """The values of one setting × methods, all other settings at their defaults."""
    found = all_sweeps(results)
    methods = methods_of(key)
    body = [
        [
            f"{value:g}",
            *(found.cell(only(found, method, key, value)).number("best5") for method in methods),
        ]
        for value in values_of(found, key)
    ]
    return table([SWEPT[key], *(METHODS[method] for method in methods)], body) + found.progress


def methods_of(key: str) -> tuple[str, ...]:
    """FedAvg has no anchors."""
    return ("fedavg", "fedadb") if key.startswith("local.") else ("fedadb",)


def values_of(found: Results, key: str) -> list[float]:
    return sorted({value for value in found.different(key) if value is not None})


def only(found: Results, method: str, key: str, value: Any) -> Callable[[Run], bool]:
    """Whether a run is the method's with this value, and differs in nothing else that is swept."""
    defaults = defaults_of(found, method)
    wanted = {**defaults, key: value, "algorithm": method}
    return lambda run: all(run[one] == wanted[one] for one in wanted)


def defaults_of(found: Results, method: str) -> dict[str, Any]:
    """The values of the settings that other sweeps of the study leave as they are."""
    runs = [run for run in found.runs if run["algorithm"] == method]
    values: dict[str, list[Any]] = {key: [run[key] for run in runs] for key in SWEPT}
    # In a study of single changes, the value that most runs have is the default.
    return {key: max(set(many), key=many.count) for key, many in values.items()}


def draw(found: Results, settings: dict[str, str]) -> Figure:
    """One panel per setting: the mean over seeds, with the deviation where there are several."""
    keys, colours = list(settings), method_colours(list(METHODS.values()))

    def panel(axes: Axes, i: int) -> None:
        values = values_of(found, keys[i])
        for method in methods_of(keys[i]):
            label = METHODS[method]
            cells = [
                found.cell(only(found, method, keys[i], value)).values("best5") for value in values
            ]
            known = [(x, seeds) for x, seeds in enumerate(cells) if seeds]
            axes.errorbar(
                [x for x, _ in known],
                [fmean(seeds) for _, seeds in known],
                yerr=[pstdev(seeds) for _, seeds in known],
                color=colours[label],
                label=label,
                marker="o",
                capsize=3,
            )
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axes.set(ylabel="best five rounds (%)", ylim=(0, 100))
        axes.grid(alpha=0.3)

    return draw_panels(list(settings.values()), panel)


TABLES = {f"sweep-{key.rpartition('.')[2]}": partial(sweep, key=key) for key in SWEPT}
