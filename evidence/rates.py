"""The learning rates that were compared on validation data, before the studies that use them."""

from functools import partial
from pathlib import Path
from statistics import fmean

from evidence.markdown import table
from evidence.results import has, study_results
from fedadb.report.labels import METHODS


def rates(results: Path, *, study: str, dataset: str) -> str:
    """Methods × learning rates: accuracy on validation data; bold is the best."""
    found = study_results(results, study).part(has(dataset=dataset))
    lrs = found.different("lr")
    body = []
    for method in found.different("algorithm"):
        cells = [found.cell(has(algorithm=method, lr=lr)) for lr in lrs]
        means = [fmean(cell.values("validation5") or [0]) for cell in cells]
        shown = [cell.number("validation5") for cell in cells]
        if any(means):
            best = means.index(max(means))
            shown[best] = f"**{shown[best]}**"
        body.append([name_of(method), *shown])
    return table(["method", *(f"{lr:g}" for lr in lrs)], body) + found.progress


def name_of(method: str) -> str:
    """A method's name; of code beside the studies, its class."""
    return METHODS.get(method, method.rpartition(":")[2])


TABLES = {
    "cifar10-rates": partial(rates, study="cifar10-rates", dataset="cifar10"),
    "better-rates-organamnist": partial(rates, study="better-rates", dataset="organamnist"),
    "better-rates-cifar10": partial(rates, study="better-rates", dataset="cifar10"),
}
