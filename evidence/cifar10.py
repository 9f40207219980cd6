"""CIFAR-10: methods with LeNet, and normalisation in a narrow ResNet-18."""

from pathlib import Path

from evidence import published
from evidence.markdown import NOTHING, table
from evidence.results import Cell, has, study_results
from evidence.rows import measured
from fedadb.report.labels import METHODS

NORMS = {"batch": "batch statistics", "group": "groups"}


def by_alpha(results: Path) -> str:
    """Methods × α: the best five rounds, and the paper's with ResNet-18 below if it has them."""
    study = study_results(results, "cifar10-lenet")
    alphas = study.different("alpha")
    body = []
    for method in study.different("algorithm"):
        cells = [study.cell(has(algorithm=method, alpha=alpha)) for alpha in alphas]
        key = {"scenario": "cross-device", "dataset": "cifar10", "algorithm": method}
        theirs = [published.with_deviation("table1", alpha=f"{a:g}", **key) for a in alphas]
        lr = f"{cells[0].setting('local.lr'):g}"
        body.append([METHODS[method], lr, *(cell.number("best5") for cell in cells)])
        if set(theirs) != {NOTHING}:
            body.append(["", "ResNet-18, the paper's", *theirs])
    return table(["method", "lr", *(f"α = {a:g}" for a in alphas)], body) + study.progress


def normalisation(results: Path) -> str:
    """Normalisations × methods, with what clients see of the anchors."""
    study = study_results(results, "normalisation")
    body = []
    for norm in study.different("norm"):
        for method in study.different("algorithm"):
            cell = study.cell(has(norm=norm, algorithm=method))
            body.append(
                [
                    *(NORMS[norm], METHODS[method]),
                    *(cell.number(column) for column in ("best5", "last10", "forgetting")),
                    *(late_mean(cell, key) for key in ("tau", "anchor_confidence")),
                ]
            )
    header = ["normalisation", "method", "best five rounds", "last ten rounds", "forgetting"]
    return table([*header, "τ", "confidence at clients"], body) + study.progress


def late_mean(cell: Cell, key: str) -> str:
    """A measurement's mean over the last ten rounds and the seeds."""
    values = [measured(row)[key] for row in cell.rows if key in measured(row)]
    return f"{sum(values) / len(values):.2f}" if values else NOTHING


TABLES = {"cifar10-lenet": by_alpha, "normalisation": normalisation}
