"""What the hyperparameters of FedADB and of anchor generation change: the paper's two figures."""

from functools import partial
from pathlib import Path
from statistics import fmean, pstdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evidence.markdown import table
from evidence.results import Cell, Results, has, study_results
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import flatten
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
    return study_results(results, "hyperparameters")


def sweep(results: Path, *, key: str) -> str:
    """The values of one setting × methods, all other settings at their defaults."""
    study = all_sweeps(results)
    methods, values = methods_of(key), values_of(study, key)
    body = [
        [
            f"{value:g}",
            *(cell_of(study, method, key, value).number("best5") for method in methods),
        ]
        for value in values
    ]
    header = [SWEPT[key], *(METHODS[method] for method in methods)]
    runs = [run for m in methods for value in values for run in cell_of(study, m, key, value).runs]
    return table(header, body) + Results(runs).progress


def methods_of(key: str) -> tuple[str, ...]:
    """FedAvg has no anchors."""
    return ("fedavg", "fedadb") if key.startswith("local.") else ("fedadb",)


def values_of(study: Results, key: str) -> list[float]:
    return sorted({value for value in study.different(key) if value is not None})


def cell_of(study: Results, method: str, key: str, value: float) -> Cell:
    """The method's runs with this value, and the defaults of all else that is swept."""
    default = Experiment.read({"dataset": "organamnist", "algorithm": method}).table()
    swept = {one: v for one, v in flatten(default).items() if one in SWEPT}
    return study.cell(has(**{**swept, key: value, "algorithm": method}))


def draw(study: Results, settings: dict[str, str]) -> Figure:
    """One panel per setting: the mean over seeds, with the deviation where there are several."""
    keys, colours = list(settings), method_colours(list(METHODS.values()))

    def panel(axes: Axes, i: int) -> None:
        values = values_of(study, keys[i])
        for method in methods_of(keys[i]):
            label = METHODS[method]
            cells = [cell_of(study, method, keys[i], value).values("best5") for value in values]
            points = [(x, seeds) for x, seeds in enumerate(cells) if seeds]
            axes.errorbar(
                [x for x, _ in points],
                [fmean(seeds) for _, seeds in points],
                yerr=[pstdev(seeds) for _, seeds in points],
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
