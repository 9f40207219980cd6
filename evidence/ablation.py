"""What each part of FedADB contributes, and what the weight of the local branch changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evidence import published
from evidence.markdown import NOTHING, table
from evidence.results import Results, Run, has, study_results, with_difference

ALL = "all of FedADB"
# The parts that are used, and the settings of the run.
PARTS: dict[str, dict[str, Any]] = {
    "FedAvg: none": {"algorithm": "fedavg"},
    "global branch, no anchors": {"algorithm": "fedadb", "generate": False, "calibrate": False},
    "both branches, no anchors": {"algorithm": "fedadb", "generate": False, "calibrate": True},
    "global branch with anchors": {"algorithm": "fedadb", "generate": True, "calibrate": False},
    ALL: {"algorithm": "fedadb", "generate": True, "calibrate": True},
}
IN_THE_PAPER = {
    "FedAvg: none": {"agb": "no", "lcb": "no", "cag": "no"},
    "global branch, no anchors": {"agb": "yes", "lcb": "no", "cag": "no"},
    "both branches, no anchors": {"agb": "yes", "lcb": "yes", "cag": "no"},
    "global branch with anchors": {"agb": "yes", "lcb": "no", "cag": "yes"},
    ALL: {"agb": "yes", "lcb": "yes", "cag": "yes"},
}


def parts(results: Path) -> str:
    """Parts × α: ours on OrganAMNIST, their difference from all parts, and the paper's."""
    study = study_results(results, "ablation")
    alphas = study.different("alpha")
    whole = [study.cell(using(ALL, alpha)) for alpha in alphas]
    body, runs = [], []
    for name in PARTS:
        cells = [study.cell(using(name, alpha)) for alpha in alphas]
        theirs = [
            published.accuracy("ablation", alpha=f"{a:g}", **IN_THE_PAPER[name]) for a in alphas
        ]
        in_turn = " / ".join(NOTHING if one is None else f"{one:.2f}" for one in theirs)
        body.append([name, *map(with_difference, cells, whole), in_turn])
        runs += [run for cell in cells for run in cell.runs]
    header = ["parts", *(f"α = {a:g}" for a in alphas), "the paper's, CIFAR-10"]
    return table(header, body) + Results(runs).progress


def using(name: str, alpha: float) -> Callable[[Run], bool]:
    """Whether a run has these parts, and the adaptive β if it has one."""
    settings = PARTS[name]
    adaptive = {"beta": "none"} if settings["algorithm"] == "fedadb" else {}
    return has(**settings, **adaptive, alpha=alpha)


def betas(results: Path) -> str:
    """Weights β of the local branch × α."""
    study = study_results(results, "ablation")
    alphas = study.different("alpha")
    fixed = [beta for beta in study.different("beta") if beta not in (None, "none")]
    body, runs = [], []
    for beta in [*fixed, "none"]:
        whole = {"algorithm": "fedadb", "generate": True, "calibrate": True, "beta": beta}
        cells = [study.cell(has(**whole, alpha=alpha)) for alpha in alphas]
        key = "adaptive" if beta == "none" else f"{beta:g}"
        theirs = [_beta(dataset, key) for dataset in ("cifar10", "cifar100")]
        body.append([key, *(cell.number("best5") for cell in cells), *theirs])
        runs += [run for cell in cells for run in cell.runs]
    header = ["β", *(f"α = {a:g}" for a in alphas), "the paper's, CIFAR-10", "CIFAR-100"]
    return table(header, body) + Results(runs).progress


def _beta(dataset: str, beta: str) -> str:
    accuracy = published.accuracy("beta", dataset=dataset, beta=beta)
    return NOTHING if accuracy is None else f"{accuracy:.2f}"


TABLES = {"ablation": parts, "beta": betas}
