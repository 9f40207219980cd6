"""Changes of FedADB: their difference from FedADB, paired by seed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

from evidence.markdown import table
from evidence.rates import by_label
from evidence.results import Cell, has, study_results, with_difference
from fedadb.report.labels import DATASETS


def changes(results: Path, *, name: str) -> str:
    """Methods × datasets and α: the best five rounds, and the difference from FedADB."""
    study = study_results(results, name)
    settings = [(d, a) for d in study.different("dataset") for a in study.different("alpha")]
    methods = by_label(study)
    body = []
    for method, runs in methods.items():
        line = [method]
        for dataset, alpha in settings:
            here = has(dataset=dataset, alpha=alpha)
            line.append(with_difference(runs.cell(here), methods["FedADB"].cell(here)))
        body.append(line)
    header = [f"{DATASETS[dataset]}, α = {alpha:g}" for dataset, alpha in settings]
    return table(["method", *header], body) + study.progress


def tried(results: Path) -> str:
    """Changes × learning rates on validation data, and the test accuracy at the better rate."""
    study = study_results(results, "tried")
    rates = study.different("lr")
    body = []
    for method, runs in by_label(study).items():
        cells = [runs.cell(has(lr=lr)) for lr in rates]
        done = [cell for cell in cells if cell.values("validation5")]
        best = max(done, key=lambda cell: fmean(cell.values("validation5")), default=Cell([]))
        body.append(
            [
                method,
                *(cell.number("validation5") for cell in cells),
                *(best.number(column) for column in ("best5", "forgetting", "worst_class")),
            ]
        )
    header = [*(f"validation, lr {lr:g}" for lr in rates), "best five", "forgetting"]
    return table(["", *header, "worst class"], body) + study.progress


TABLES: dict[str, Callable[[Path], str]] = {
    "better": partial(changes, name="better"),
    "one-branch": partial(changes, name="one-branch"),
    "tried": tried,
}
