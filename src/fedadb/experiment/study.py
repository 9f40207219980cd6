"""A study: many experiments that belong together, such as a table of the paper.

    title = "…"
    analyse = ["hessian"]        # if its runs are to be looked into as well
    [experiment]                 # what all have in common
    [vary]                       # what all grids vary: setting = [values]
    seed = [0, 1, 2]
    [[grid]]                     # every combination of its values and those above
    dataset = ["svhn", "organamnist"]

A study's experiments are those of all its grids, each once.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment import config, tables
from fedadb.experiment.config import Experiment
from fedadb.experiment.directory import run_name
from fedadb.experiment.presets import NAMED, flat, merge, nested, scenario

KINDS = {"title": str, "analyse": list, "experiment": dict, "vary": dict, "grid": list}
WRITTEN = {
    "title": "text",
    "analyse": "a list of analyses",
    "experiment": "a table",
    "vary": "a table",
    "grid": "[[grid]] tables",
}


@dataclass(frozen=True)
class Study:
    title: str
    experiments: Sequence[Experiment]
    analyses: Sequence[str] = ()  # of its runs, when they are done


def read_study(path: Path, settings: Sequence[str] = (), scale: float = 1.0) -> Study:
    """The study of a file; settings from the command line hold for all its experiments."""
    table = config.load(path)
    for key, value in table.items():
        if key not in KINDS:
            raise BadInput(f"{path}: {key} is not a key of a study; {tables.near(key, KINDS)}")
        if not isinstance(value, KINDS[key]):
            raise BadInput(f"{path}: {key} must be {WRITTEN[key]}")
    if not table.get("grid"):
        raise BadInput(f"{path} has no [[grid]]: it varies nothing")
    found: dict[str, Experiment] = {}
    for grid in table["grid"]:
        for setting in settings:
            name = setting.partition("=")[0].strip()
            if name in {**grid, **table.get("vary", {})}:
                raise BadInput(f"--set {setting}: {name} is varied here; --only chooses among it")
        for chosen in combinations({**grid, **table.get("vary", {})}, str(path)):
            given = table.get("experiment", {})
            for key, value in chosen.items():
                given = merge(given, nested(key, value))
            for setting in settings:
                given = config.override(given, setting)
            experiment = scaled(Experiment.read(given), scale)
            found.setdefault(run_name(experiment), experiment)
    return Study(table.get("title", path.stem), list(found.values()), table.get("analyse", ()))


def combinations(axes: Mapping[str, Any], path: str) -> Iterator[dict[str, Any]]:
    for key, values in axes.items():
        if isinstance(values, dict):
            inner = next(iter(values))
            raise BadInput(f'{path}: {key}.{inner} needs quotes: "{key}.{inner}" = [...]')
        if not isinstance(values, list) or not values:
            raise BadInput(f"{path}: {key} = {values!r}: must be a list of values")
        if twice := [v for i, v in enumerate(values) if v in values[:i]]:
            raise BadInput(f"{path}: {key} has {twice[0]!r} twice")
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def scaled(e: Experiment, scale: float) -> Experiment:
    """A share of the rounds, over which the learning rate falls as far as over all of them.

    β = (t/T)^(γτ) weighs a round by its place among T; so must the learning rate.
    """
    if scale == 1:
        return e
    rounds = max(1, round(scale * e.rounds))
    decay = math.pow(e.local.lr_decay, e.rounds / rounds)
    return Experiment.read(merge(e.table(), {"rounds": rounds, "local": {"lr_decay": decay}}))


def says(experiment: Experiment, key: str) -> Any:
    """A setting by its name or the end of it: `alpha` is `federation.partition.alpha`."""
    settings = flat(experiment.table())
    if key in ("scenario", "federation.scenario"):
        return scenario(settings)
    if f"{key}.name" in settings and key in NAMED:
        return settings[f"{key}.name"]
    ends = [name for name in settings if name == key or name.endswith(f".{key}")]
    # FedDyn has an alpha too; the settings that methods share come first.
    ends.sort(key=lambda name: name.startswith("algorithm."))
    return settings[ends[0]] if ends else None


def select(experiments: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """Those for which all of `KEY=VALUE[,VALUE…]` hold."""
    left = list(experiments)
    for condition in only:
        key, equals, wanted = condition.partition("=")
        if not equals:
            raise BadInput(f"--only {condition}: must be KEY=VALUE, as in dataset=organamnist")
        known = list(dict.fromkeys(says(e, key) for e in experiments))
        if known == [None]:
            raise BadInput(f"--only {condition}: no experiment here has a setting {key!r}")
        values = [_same(value, known) for value in wanted.split(",")]
        if None in values:
            there = ", ".join(str(value) for value in known if value is not None)
            raise BadInput(f"--only {condition}: {key} is {there} here")
        left = [e for e in left if says(e, key) in values]
    if not left:
        raise BadInput(
            f"--only {' --only '.join(only)}: no experiment is all of that; several values of one "
            "key go with commas, dataset=a,b"
        )
    return left


def _same(text: str, known: Sequence[Any]) -> Any:
    """Which of the known values is meant: numbers are the same however they are written."""
    for value in known:
        if text == str(value) or (isinstance(value, bool) and text == str(value).lower()):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with suppress(ValueError):
                if float(text) == value:
                    return value
    return None
