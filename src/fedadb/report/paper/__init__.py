"""The numbers that the paper publishes, and which of our runs they may stand beside."""

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedadb.experiment.presets import flatten, scenario
from fedadb.experiment.settings import role
from fedadb.report.runs import Run

HERE = Path(__file__).parent


class Published(NamedTuple):
    """An accuracy of the paper, in per cent."""

    mean: float
    deviation: float | None


@cache
def table(name: str) -> list[dict[str, str]]:
    """The rows of one of the paper's tables."""
    with (HERE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def settings() -> dict[str, Any]:
    return tomllib.loads((HERE / "settings.toml").read_text(encoding="utf-8"))


def deviations(run: Run) -> dict[str, Any] | None:
    """Where a run's settings are not the paper's; None if the paper has nothing like it.

    The dataset, its skew α, the scenario and the method are what the paper varies.
    """
    paper, dataset, name = settings(), run.experiment["dataset"], run.algorithm
    known = dataset in paper["rounds"] and name in paper["algorithm"]
    if not known or scenario(run.settings) is None:
        return None
    expected = flatten(
        {
            "rounds": paper["rounds"][dataset],
            "model": paper["model"][dataset],
            "federation": paper["federation"],
            "federation.partition": paper["partition"]["pacs" if dataset == "pacs" else "others"],
            "local": paper["local"],
            "algorithm": {"name": name, **paper["algorithm"][name]},
            "engine": paper["engine"],
        }
    )
    keys = [key for key in (expected | run.settings) if role(key).fixed_by_paper]
    changed = {key: run.settings.get(key) for key in keys}
    return {key: value for key, value in changed.items() if value != expected.get(key)}


def published(run: Run) -> Published | None:
    """What the paper has for the run's setting."""
    changed = deviations(run)
    if changed is None:
        return None
    dataset, alpha = run.experiment["dataset"], _alpha(run)
    where = {"dataset": dataset, "alpha": alpha}
    if not changed:
        here = {"scenario": scenario(run.settings), "algorithm": run.algorithm}
        name = "pacs" if dataset == "pacs" else "table1"
        return _find(name, {"algorithm": run.algorithm} if dataset == "pacs" else {**where, **here})
    if scenario(run.settings) != "cross-device":
        return None
    if changed.keys() == {"algorithm.beta"} and alpha == "0.1":
        return _find("beta", {"dataset": dataset, "beta": f"{changed['algorithm.beta']:g}"})
    parts = {"algorithm.generate": "cag", "algorithm.calibrate": "lcb"}
    if dataset == "cifar10" and len(changed) == 1 and changed.keys() <= parts.keys():
        without = parts[next(iter(changed))]
        used = {part: "no" if part == without else "yes" for part in ("agb", "lcb", "cag")}
        return _find("ablation", {"alpha": alpha, **used})
    return None


def average(run: Run) -> Published | None:
    """The mean over the ten columns of Table 1, for the run's method and scenario."""
    key = {"scenario": scenario(run.settings), "dataset": "average", "algorithm": run.algorithm}
    return _find("table1", key)


def rounds_to_targets(run: Run) -> list[dict[str, str]]:
    """The rows of the paper's convergence table, lowest target first, for the run's setting."""
    if deviations(run) != {} or scenario(run.settings) != "cross-device":
        return []
    key = {"dataset": run.experiment["dataset"], "alpha": _alpha(run), "algorithm": run.algorithm}
    return [row for row in table("convergence") if key.items() <= row.items()]


def _alpha(run: Run) -> str:
    return f"{run.settings.get('federation.partition.alpha', 0):g}"


def _find(name: str, key: Mapping[str, Any]) -> Published | None:
    for row in table(name):
        if key.items() <= row.items():
            deviation = float(row["std"]) if row.get("std") else None
            return Published(float(row["accuracy"]), deviation)
    return None
