"""What each part of FedADB contributes, and what its hyperparameters change."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from evidence import published
from evidence.markdown import NOTHING, table
from evidence.results import Results, Run, has, study_results
from fedadb.report.labels import METHODS

# The parts that are used, and the settings of the run.
PARTS: dict[str, dict[str, Any]] = {
    "FedAvg: none": {"algorithm": "fedavg"},
    "both branches, no anchors": {"algorithm": "fedadb", "generate": False},
    "global branch with anchors": {"algorithm": "fedadb", "calibrate": False},
    "all of FedADB": {"algorithm": "fedadb", "generate": True, "calibrate": True},
}
IN_THE_PAPER = {
    "FedAvg: none": {"agb": "no", "lcb": "no", "cag": "no"},
    "both branches, no anchors": {"agb": "yes", "lcb": "yes", "cag": "no"},
    "global branch with anchors": {"agb": "yes", "lcb": "no", "cag": "yes"},
    "all of FedADB": {"agb": "yes", "lcb": "yes", "cag": "yes"},
}
SWEPT = {
    "local.epochs": "local epochs",
    "local.lr": "learning rate",
    "algorithm.anchors_per_class": "anchors per class",
    "algorithm.eta": "η",
    "algorithm.steps": "I",
    "algorithm.lam": "λ",
    "algorithm.sigma": "σ",
}


def parts(results: Path) -> str:
    """Parts × α: ours on OrganAMNIST, and the paper's on CIFAR-10."""
    found = study_results(results, "ablation-organamnist", "ablation")
    alphas = found.different("alpha")
    body = []
    for name, settings in PARTS.items():
        adaptive = {"beta": "none"} if settings["algorithm"] == "fedadb" else {}
        cells = [found.cell(has(**settings, **adaptive, alpha=alpha)) for alpha in alphas]
        theirs = [
            published.accuracy("ablation", alpha=f"{a:g}", **IN_THE_PAPER[name]) for a in alphas
        ]
        shown = [NOTHING if one is None else f"{one:.2f}" for one in theirs]
        body.append([name, *(cell.number("best5") for cell in cells), " / ".join(shown)])
    header = ["parts", *(f"α = {a:g}" for a in alphas), "the paper's, CIFAR-10"]
    return table(header, body) + found.progress


def weights(results: Path) -> str:
    """Weights β of the local branch × α."""
    found = study_results(results, "ablation-organamnist", "ablation")
    alphas = found.different("alpha")
    betas = [beta for beta in found.different("beta") if beta not in (None, "none")]
    body = []
    for beta in [*betas, "none"]:
        whole = {"algorithm": "fedadb", "generate": True, "calibrate": True, "beta": beta}
        cells = [found.cell(has(**whole, alpha=alpha)) for alpha in alphas]
        key = "adaptive" if beta == "none" else f"{beta:g}"
        theirs = [_beta(dataset, key) for dataset in ("cifar10", "cifar100")]
        body.append([key, *(cell.number("best5") for cell in cells), *theirs])
    header = ["β", *(f"α = {a:g}" for a in alphas), "the paper's, CIFAR-10", "CIFAR-100"]
    return table(header, body) + found.progress


def _beta(dataset: str, beta: str) -> str:
    found = published.accuracy("beta", dataset=dataset, beta=beta)
    return NOTHING if found is None else f"{found:.2f}"


def sweep(results: Path, *, key: str) -> str:
    """The values of one setting × methods, all other settings at their defaults."""
    found = study_results(results, "hyperparameters-organamnist", "hyperparameters")
    methods = ("fedavg", "fedadb") if key.startswith("local.") else ("fedadb",)
    values = sorted({v for v in found.different(key) if v is not None})
    body = [
        [
            f"{value:g}",
            *(found.cell(only(found, method, key, value)).number("best5") for method in methods),
        ]
        for value in values
    ]
    return table([SWEPT[key], *(METHODS[method] for method in methods)], body) + found.progress


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


TABLES = {"ablation": parts, "beta": weights} | {
    f"sweep-{key.rpartition('.')[2]}": partial(sweep, key=key) for key in SWEPT
}
