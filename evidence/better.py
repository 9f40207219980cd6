"""Changes of FedADB: their difference from FedADB, paired by seed."""

from collections.abc import Callable
from pathlib import Path

from experiments.candidates import AnchoredSoftmax

from evidence.cifar10 import name_of
from evidence.markdown import table
from evidence.organamnist import signed
from evidence.results import Cell, Run, has, study_results
from fedadb.report.labels import DATASETS
from fedadb.report.metrics import paired_difference


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
        body.append([*line, found.cell(has(algorithm=method)).minutes()])
    header = [f"{DATASETS[dataset]}, α = {alpha:g}" for dataset, alpha in settings]
    return table(["method", *header, "minutes"], body) + found.progress


def tried(results: Path) -> str:
    """Changes × learning rates on validation data, and the test accuracy at the better rate."""
    found = study_results(results, "tried")
    rates = found.different("lr")
    body = []
    for algorithm in dict.fromkeys(map(_algorithm, found.runs)):
        cells = [found.cell(_is(algorithm, lr)) for lr in rates]
        known = [cell for cell in cells if cell.values("validation5")]
        best = max(known, key=lambda cell: cell.values("validation5"), default=Cell([]))
        body.append(
            [
                algorithm,
                *(cell.number("validation5") for cell in cells),
                *(best.number(column) for column in ("best5", "forgetting", "worst_class")),
            ]
        )
    header = [*(f"validation, lr {lr:g}" for lr in rates), "best five", "forgetting"]
    return table(["", *header, "worst class"], body) + found.progress


def _algorithm(run: Run) -> str:
    name, share = name_of(run["algorithm"]), run["anchor_share"]
    return name if share in (None, AnchoredSoftmax().anchor_share) else f"{name}, a = {share:g}"


def _is(algorithm: str, lr: float) -> Callable[[Run], bool]:
    return lambda run: _algorithm(run) == algorithm and run["lr"] == lr


def _gain(cell: Cell, reference: Cell) -> str:
    """The mean difference from FedADB and half its 95 % interval, if there are pairs of seeds."""
    ours, theirs = (
        {int(row["seed"]): float(row["best5"]) for row in one.rows if row["best5"]}
        for one in (cell, reference)
    )
    if cell == reference or not (found := paired_difference(ours, theirs)):
        return ""
    half = "" if found.half is None else f" ± {found.half:.1f}"
    return f" ({signed(found.mean)}{half})"


TABLES = {"better": changes, "tried": tried}
