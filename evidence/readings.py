"""The table of readings of the paper: how far each is from the paper's row."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence import published
from evidence.markdown import NOTHING, signed, table
from evidence.organamnist import DEVICE, difference, in_table1
from evidence.results import Cell, Results, Run, has, study_results
from evidence.rows import TARGETS
from fedadb.report.labels import METHODS
from fedadb.report.metrics import ewma, first_round

BY_SEED = {"partition.name": "dirichlet", "sampling": "seeded"}
# What differs from the first reading.
READINGS: dict[str, dict[str, Any]] = {
    "reference partition, all images, mirrored": {},
    "without validation images": {"validation": "published"},
    "not mirrored": {"augment": False},
    "no validation images, not mirrored": {"validation": "published", "augment": False},
    "a partition for each seed": {**BY_SEED, "partition.limit": 1.0},
    "a partition for each seed, no limit on sizes": {**BY_SEED, "partition.limit": "none"},
    "LeNet with batch statistics": {"model.name": "experiments.variants:NormalisedLeNet"},
    "LeNet with three channels": {"model.name": "experiments.variants:ColourLeNet"},
    "anchors for all classes": {"anchors_for": "all"},
    "longer epochs": {"balanced_epoch": "largest"},
    "each anchor once per batch": {"algorithm": "experiments.variants:SingleAnchors"},
    "anchors between 0 and 1": {"algorithm": "experiments.variants:UnitAnchors"},
}
BASE = {
    "validation": 0.0,
    "partition.name": "reference",
    "sampling": "reference",
    "model.name": "lenet",
    "anchors_for": "missing",
    "augment": True,
    "balanced_epoch": "local",
}
OF_FEDADB = ("anchors_for", "balanced_epoch", "algorithm")  # FedAvg has no part in them
CLIP = 10.0  # the norm at which the authors of three methods clip gradients
HEADER = (
    *("reading", "lr", "FedAvg", "FedADB", "distance"),
    *("rounds to 36 / 51 / 67 %, FedAvg", "rounds, FedADB"),
)


def readings(results: Path) -> str:
    """Readings × learning rates, and the paper's own line."""
    study = study_results(results, "readings")
    body = [
        reading_line(study, name, changes, lr)
        for name, changes in READINGS.items()
        for lr in study.different("lr")
    ]
    return table(HEADER, [*body, paper_line()]) + study.progress


def reading_line(study: Results, name: str, changes: Mapping[str, Any], lr: float) -> list[str]:
    ours = {method: study.cell(reading(method, changes, lr)) for method in ("fedavg", "fedadb")}
    return [
        name,
        f"{lr:g}",
        *(beside_the_paper(cell, method) for method, cell in ours.items()),
        distance(ours),
        *(" / ".join(cell.rounds(target) for target in TARGETS) for cell in ours.values()),
    ]


def reading(method: str, changes: Mapping[str, Any], lr: float) -> Callable[[Run], bool]:
    """Whether a run is the method's of this reading."""
    wanted = {**BASE, "algorithm": method, **changes, "lr": lr}
    if method == "fedavg":
        wanted = {key: value for key, value in wanted.items() if key not in OF_FEDADB}
        wanted["algorithm"] = method
    return has(**wanted)


def beside_the_paper(cell: Cell, method: str) -> str:
    """Our accuracy, and its difference from the paper's."""
    points = difference(cell, method)
    return cell.number("best5") + ("" if points is None else f" ({signed(points)})")


def distance(cells: Mapping[str, Cell]) -> str:
    """The mean of the methods' distances from the paper, in points, if all have run."""
    points = [difference(cell, method) for method, cell in cells.items()]
    distances = [abs(one) for one in points if one is not None]
    return f"{fmean(distances):.1f}" if len(distances) == len(cells) else NOTHING


def paper_line() -> list[str]:
    accuracies = [_of_paper(method) for method in ("fedavg", "fedadb")]
    rounds = [
        " / ".join(published.rounds("organamnist", method, target) for target in TARGETS)
        for method in ("fedavg", "fedadb")
    ]
    return ["**the paper**", "not stated", *accuracies, "0", *rounds]


def column(results: Path) -> str:
    """Methods × learning rates beside the paper's column, and the mean distance from it."""
    study = study_results(results, "organamnist-rates")
    clipped = study.part(lambda run: run["clip"] == CLIP)
    unclipped = study.part(lambda run: run["clip"] != CLIP)
    rates = study.different("lr")
    without, with_clip = (
        [
            {m: part.cell(has(algorithm=m, lr=lr)) for m in part.different("algorithm")}
            for lr in rates
        ]
        for part in (unclipped, clipped)
    )
    mixed = [{**at_lr, **changed} for at_lr, changed in zip(without, with_clip, strict=True)]
    body = [
        *_methods(without, "{}"),
        ["mean distance", *map(distance, without), "0"],
        *_methods(with_clip, f"{{}}, clipped at {CLIP:g}"),
        ["mean distance with these three", *map(distance, mixed), "0"],
    ]
    header = ["method", *(f"lr {lr:g}" for lr in rates), "the paper's"]
    return table(header, body) + study.progress


def _methods(by_rate: Sequence[Mapping[str, Cell]], label: str) -> list[list[str]]:
    """One line per method: its accuracy at each rate, and the paper's."""
    return [
        [
            label.format(METHODS[method]),
            *(beside_the_paper(cells[method], method) for cells in by_rate),
            _of_paper(method),
        ]
        for method in by_rate[0]
    ]


# Of methods that are far from the paper at every rate: settings other than the defaults.
OTHER_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "fedgela": {"`temperature = 1.0`": {"temperature": 1.0}},
    "fedexp": {"`evaluate_mean = false`": {"evaluate_mean": False}},
    "feddecorr": {
        "`lam = 0.01`": {"lam": 0.01},
        "`normalise = true`": {"normalise": True},
    },
    "fedacg": {"`lam = 0.0`": {"lam": 0.0}},
}


def settings(results: Path) -> str:
    """Methods with their defaults and with other settings × learning rates, beside the paper's."""
    study = study_results(results, "organamnist-settings")
    default = study_results(results, "organamnist-rates").part(has(clip="auto"))
    rates = study.different("lr")
    body = []
    for method, others in OTHER_SETTINGS.items():
        parts = {"default": default.part(has(algorithm=method))}
        parts |= {name: study.part(has(algorithm=method, **one)) for name, one in others.items()}
        for name, part in parts.items():
            cells = [beside_the_paper(part.cell(has(lr=lr)), method) for lr in rates]
            body.append([METHODS[method], name, *cells, _of_paper(method)])
    header = ["method", "settings", *(f"lr {lr:g}" for lr in rates), "the paper's"]
    return table(header, body) + study.progress


def bias_corrected(values: Sequence[float], factor: float = 0.2) -> list[float]:
    """The moving average whose first weights sum to one, pandas' `adjust=True`."""
    weights = ewma([0.0] + [1.0] * len(values), factor)[1:]
    sums = ewma([0.0, *values], factor)[1:]
    return [total / weight for total, weight in zip(sums, weights, strict=True)]


SMOOTHINGS: dict[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "the newest round counts 0.2": ewma,
    "the same, bias-corrected": bias_corrected,
    "the newest round counts 0.8": partial(ewma, factor=0.8),
    "none": list,
}


def smoothings(results: Path) -> str:
    """What is smoothed × learning rates: FedADB's rounds to the targets, in the first reading."""
    study = study_results(results, "readings")
    rates = study.different("lr")
    runs = [study.cell(reading("fedadb", {}, lr)).runs[0] for lr in rates]
    body = [
        [name, *(rounds_after(smooth, run) for run in runs)] for name, smooth in SMOOTHINGS.items()
    ]
    theirs = " / ".join(published.rounds("organamnist", "fedadb", t) for t in TARGETS)
    header = ["smoothing", *(f"lr {lr:g}" for lr in rates)]
    return table(header, [*body, ["**the paper**", *(theirs for _ in rates)]])


def rounds_after(smooth: Callable[[Sequence[float]], Sequence[float]], run: Run) -> str:
    if not run.curve:
        return NOTHING
    return " / ".join(str(first_round(smooth(run.curve), t) or "never") for t in TARGETS)


def _of_paper(method: str) -> str:
    return published.with_deviation("table1", **in_table1(method, DEVICE))


TABLES = {
    "readings": readings,
    "column": column,
    "settings": settings,
    "smoothings": smoothings,
}
