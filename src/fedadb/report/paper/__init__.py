"""The paper's published numbers, and which of them belong to a given run."""

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedadb.experiment.presets import LEARNING_RATE, scenario
from fedadb.experiment.settings import role
from fedadb.experiment.toml_tables import flatten
from fedadb.report.cells import PublishedRounds, Score
from fedadb.report.metrics import TARGET_SHARES
from fedadb.report.recorded_runs import RecordedRun

DIRECTORY = Path(__file__).parent
NOT_STATED = (LEARNING_RATE,)  # defaults differ between methods


@cache
def table(name: str) -> list[dict[str, str]]:
    """The rows of one of the paper's tables."""
    with (DIRECTORY / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def settings() -> dict[str, Any]:
    """The content of settings.toml."""
    return tomllib.loads((DIRECTORY / "settings.toml").read_text(encoding="utf-8"))


def settings_for(dataset: str, algorithm: str) -> dict[str, Any]:
    """The paper's settings for an algorithm on a dataset, by dotted name; those that it has."""
    paper = settings()
    partition = paper["partition"]["pacs" if dataset == "pacs" else "others"]
    general = paper["algorithm"].get(algorithm, {})
    return flatten(
        {
            **{key: paper[key][dataset] for key in ("rounds", "model") if dataset in paper[key]},
            "validation": paper["validation"],
            "federation": {**paper["federation"], "partition": partition},
            "local": paper["local"],
            "server": paper["server"],
            "algorithm": {"name": algorithm, **general},
            "filter": paper["filter"],
            "engine": paper["engine"],
        }
    ) | settings_on(dataset, algorithm)


def reference_value(run: RecordedRun, key: str) -> Any:
    """The paper's value of a setting for the run's dataset and method, or our default for it.

    None for datasets that the paper does not have, and for the learning rate.
    """
    if run.experiment["dataset"] not in settings()["rounds"] or key in NOT_STATED:
        return None
    return settings_for(run.experiment["dataset"], run.algorithm).get(key)


def settings_on(dataset: str, algorithm: str) -> dict[str, Any]:
    """The algorithm's settings that have a value of their own on this dataset, by dotted name."""
    values = settings()["dataset"].get(dataset, {}).get("algorithm", {}).get(algorithm, {})
    return {f"algorithm.{key}": value for key, value in values.items()}


def changed_settings(run: RecordedRun) -> dict[str, Any] | None:
    """The run's settings that are not the paper's; None if the paper has no similar run.

    The paper varies the dataset, its skew α, the scenario and the method; they do not count.
    """
    dataset = run.experiment["dataset"]
    known = dataset in settings()["rounds"] and run.algorithm in settings()["algorithm"]
    if not known or scenario(run.settings) is None:
        return None
    expected = settings_for(dataset, run.algorithm)
    fixed = {key: value for key, value in run.settings.items() if role(key).fixed_by_paper}
    return {key: value for key, value in fixed.items() if value != expected.get(key)}


def published(run: RecordedRun) -> Score | None:
    """The accuracy that the paper has for the run's settings."""
    changed = changed_settings(run)
    if changed is None:
        return None
    dataset, alpha = run.experiment["dataset"], _alpha(run)
    if not changed and dataset == "pacs":
        return _find("pacs", {"algorithm": run.algorithm})
    if not changed:
        key = {"dataset": dataset, "alpha": alpha, "algorithm": run.algorithm}
        return _find("table1", {**key, "scenario": scenario(run.settings)})
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


def average(run: RecordedRun) -> Score | None:
    """The mean over the ten columns of Table 1, for the run's method and scenario."""
    key = {"scenario": scenario(run.settings), "dataset": "average", "algorithm": run.algorithm}
    return _find("table1", key)


def rounds_to_targets(run: RecordedRun) -> dict[float, PublishedRounds]:
    """The paper's convergence table for the run's settings, by share of the best accuracy."""
    if changed_settings(run) != {} or scenario(run.settings) != "cross-device":
        return {}
    key = {"dataset": run.experiment["dataset"], "alpha": _alpha(run), "algorithm": run.algorithm}
    # Rows are in the order of their targets.
    rows = [row for row in table("convergence") if key.items() <= row.items()]
    rounds = [PublishedRounds(int(r["rounds"] or 0) or None, int(r["target"])) for r in rows]
    return dict(zip(TARGET_SHARES, rounds, strict=False))


def _alpha(run: RecordedRun) -> str:
    return f"{run.settings.get('federation.partition.alpha', 0):g}"


def _find(name: str, key: Mapping[str, Any]) -> Score | None:
    """The accuracy in the first row of a table that has these values."""
    for row in table(name):
        if key.items() <= row.items():
            deviation = float(row["std"]) if row.get("std") else None
            return Score(float(row["accuracy"]), deviation)
    return None
