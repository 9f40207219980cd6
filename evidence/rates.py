"""The learning rates that were compared on validation data, before the studies that use them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from evidence.markdown import table
from evidence.results import Results, Run, has, study_results
from experiments.candidates import AnchoredSoftmax
from fedadb.report.labels import DATASETS, METHODS


def rates(results: Path, *, name: str, dataset: str) -> str:
    """Methods × learning rates: accuracy on validation data; bold is the best."""
    study = study_results(results, name).part(has(dataset=dataset))
    lrs = study.different("lr")
    body = [[method, *in_bold(runs, lrs)] for method, runs in by_label(study).items()]
    return table(["method", *(f"{lr:g}" for lr in lrs)], body) + study.progress


def rates_by_setting(results: Path, *, name: str) -> str:
    """The same for each dataset and α."""
    study = study_results(results, name)
    lrs = sorted(study.different("lr"))
    body = [
        [f"{DATASETS[dataset]}, α = {alpha:g}", method, *in_bold(runs, lrs)]
        for dataset in study.different("dataset")
        for alpha in study.different("alpha")
        for method, runs in by_label(study.part(has(dataset=dataset, alpha=alpha))).items()
    ]
    return table(["", "method", *(f"{lr:g}" for lr in lrs)], body) + study.progress


def in_bold(runs: Results, lrs: Sequence[float]) -> list[str]:
    """The accuracy on validation data at each rate, the chosen one in bold."""
    chosen, cells = best_rate(runs), {lr: runs.cell(has(lr=lr)) for lr in lrs}
    text = {lr: cell.number("validation5") for lr, cell in cells.items()}
    return [f"**{one}**" if lr == chosen else one for lr, one in text.items()]


def best_rate(runs: Results) -> float | None:
    """The best rate on validation data, of those that ran with the most seeds."""
    seeds = {lr: runs.cell(has(lr=lr)).values("validation5") for lr in runs.different("lr")}
    seeds_and_mean = {lr: (len(values), fmean(values)) for lr, values in seeds.items() if values}
    return max(seeds_and_mean, key=lambda lr: seeds_and_mean[lr], default=None)


def by_label(study: Results) -> dict[str, Results]:
    """The runs of each method, in the order of the study."""
    runs: dict[str, list[Run]] = {}
    for run in study.runs:
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
    "organamnist-search": partial(rates, name="organamnist-search", dataset="organamnist"),
    **{
        name: partial(rates, name=name, dataset="cifar10")
        for name in ("cifar10-rates", "cifar10-skewed-rates")
    },
    "better-rates-organamnist": partial(rates, name="better-rates", dataset="organamnist"),
    "better-rates-cifar10": partial(rates, name="better-rates", dataset="cifar10"),
    "one-branch-rates": partial(rates_by_setting, name="one-branch-rates"),
}
