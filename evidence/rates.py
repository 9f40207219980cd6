"""The learning rates that were compared on validation data, before the studies that use them."""

from functools import partial
from pathlib import Path
from statistics import fmean

from experiments.candidates import AnchoredSoftmax

from evidence.markdown import table
from evidence.results import Results, Run, has, study_results
from fedadb.report.labels import METHODS


def rates(results: Path, *, study: str, dataset: str, alpha: float = 0.1) -> str:
    """Methods × learning rates: accuracy on validation data; bold is the best."""
    found = study_results(results, study).part(has(dataset=dataset, alpha=alpha))
    lrs = found.different("lr")
    body = []
    for method, runs in by_label(found).items():
        cells = [runs.cell(has(lr=lr)) for lr in lrs]
        means = [fmean(cell.values("validation5") or [0]) for cell in cells]
        shown = [cell.number("validation5") for cell in cells]
        if any(means):
            best = means.index(max(means))
            shown[best] = f"**{shown[best]}**"
        body.append([method, *shown])
    return table(["method", *(f"{lr:g}" for lr in lrs)], body) + found.progress


def by_label(found: Results) -> dict[str, Results]:
    """The runs of each method, in the order of the study."""
    runs: dict[str, list[Run]] = {}
    for run in found.runs:
        runs.setdefault(label(run), []).append(run)
    return {method: Results(of_method) for method, of_method in runs.items()}


def label(run: Run) -> str:
    """The method's name, or that of the change which its settings make of it."""
    if run["calibrate"] is False:
        return "OneBranch"
    name, share = name_of(run["algorithm"]), run["anchor_share"]
    return name if share in (None, AnchoredSoftmax().anchor_share) else f"{name}, a = {share:g}"


def name_of(method: str) -> str:
    """A method's name; of code beside the studies, its class."""
    return METHODS.get(method, method.rpartition(":")[2])


TABLES = {
    "cifar10-rates": partial(rates, study="cifar10-rates", dataset="cifar10"),
    **{
        f"better-rates-{dataset}-{alpha}": partial(
            rates, study="better-rates", dataset=dataset, alpha=alpha
        )
        for dataset in ("organamnist", "cifar10")
        for alpha in (0.05, 0.1)
    },
}
