"""Changes of FedADB: their difference from FedADB, paired by seed."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from experiments.candidates import AnchoredSoftmax

from evidence.markdown import table
from evidence.rates import name_of
from evidence.results import Cell, Run, has, paired, study_results
from fedadb.report.labels import DATASETS


def changes(results: Path) -> str:
    """Methods × datasets and α: the best five rounds, and the difference from FedADB."""
    found = study_results(results, "better")
    settings = [(d, a) for d in found.different("dataset") for a in found.different("alpha")]
    body = []
    for method in found.different("algorithm"):
        line = [name_of(method)]
        for dataset, alpha in settings:
            where = {"dataset": dataset, "alpha": alpha}
            cell = found.cell(has(algorithm=method, **where))
            line.append(
                cell.number("best5") + _gain(cell, found.cell(has(algorithm="fedadb", **where)))
            )
        body.append(line)
    header = [f"{DATASETS[dataset]}, α = {alpha:g}" for dataset, alpha in settings]
    return table(["method", *header], body) + found.progress


def tried(results: Path) -> str:
    """Changes × learning rates on validation data, and the test accuracy at the better rate."""
    found = study_results(results, "tried")
    rates = found.different("lr")
    body = []
    for label in dict.fromkeys(map(_label, found.runs)):
        cells = [found.cell(_is(label, lr)) for lr in rates]
        known = [cell for cell in cells if cell.values("validation5")]
        best = max(known, key=lambda cell: fmean(cell.values("validation5")), default=Cell([]))
        body.append(
            [
                label,
                *(cell.number("validation5") for cell in cells),
                *(best.number(column) for column in ("best5", "forgetting", "worst_class")),
            ]
        )
    header = [*(f"validation, lr {lr:g}" for lr in rates), "best five", "forgetting"]
    return table(["", *header, "worst class"], body) + found.progress


def _label(run: Run) -> str:
    """The method's name, with the weight of anchors where it is not the default."""
    name, share = name_of(run["algorithm"]), run["anchor_share"]
    return name if share in (None, AnchoredSoftmax().anchor_share) else f"{name}, a = {share:g}"


def _is(label: str, lr: float) -> Callable[[Run], bool]:
    return lambda run: _label(run) == label and run["lr"] == lr


def _gain(cell: Cell, reference: Cell) -> str:
    """The difference from FedADB in brackets, if there are pairs of seeds."""
    found = paired(cell, reference)
    return f" ({found})" if found else ""


TABLES = {"better": changes, "tried": tried}
