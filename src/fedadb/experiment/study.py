"""A study: many experiments that belong together, such as a table of the paper.

    title = "…"
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment import config, tables
from fedadb.experiment.config import Experiment
from fedadb.experiment.directory import run_name
from fedadb.experiment.presets import NAMED, flat, merge, nested

KEYS = ("title", "experiment", "vary", "grid")


@dataclass(frozen=True)
class Case:
    """An experiment of a study, and what its grid set to make it."""

    experiment: Experiment
    chosen: Mapping[str, Any]

    def says(self, key: str) -> Any:
        """A setting by its name or the end of it: `alpha` is `federation.partition.alpha`."""
        settings = {**flat(self.experiment.table()), **self.chosen}
        if f"{key}.name" in settings and key in NAMED:
            return settings[f"{key}.name"]
        ends = [name for name in settings if name == key or name.endswith(f".{key}")]
        # FedDyn has an alpha too; the settings that methods share come first.
        ends.sort(key=lambda name: (name not in self.chosen, name.startswith("algorithm.")))
        return settings[ends[0]] if ends else None


@dataclass(frozen=True)
class Study:
    title: str
    cases: Sequence[Case]


def read_study(path: Path, settings: Sequence[str] = (), scale: float = 1.0) -> Study:
    """The study of a file; settings from the command line hold for all its experiments."""
    table = config.load(path)
    for key in table:
        if key not in KEYS:
            raise BadInput(f"{path}: {key} is not a key of a study; {tables.near(key, KEYS)}")
    cases: dict[str, Case] = {}
    for grid in table.get("grid", [{}]):
        for chosen in combinations({**table.get("vary", {}), **grid}, str(path)):
            given = table.get("experiment", {})
            for key, value in chosen.items():
                given = merge(given, nested(key, value))
            for setting in settings:
                given = config.override(given, setting)
            experiment = scaled(Experiment.read(given), scale)
            cases.setdefault(run_name(experiment), Case(experiment, chosen))
    return Study(table.get("title", path.stem), list(cases.values()))


def combinations(axes: Mapping[str, Any], path: str) -> Iterator[dict[str, Any]]:
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise BadInput(f"{path}: {key} = {values!r}: must be a list of values")
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


def select(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """The cases for which all of `KEY=VALUE[,VALUE…]` hold."""
    left = list(cases)
    for condition in only:
        key, equals, wanted = condition.partition("=")
        if not equals:
            raise BadInput(f"--only {condition}: must be KEY=VALUE, as in dataset=organamnist")
        known = list(dict.fromkeys(str(case.says(key)) for case in cases))
        if known == ["None"]:
            raise BadInput(f"--only {condition}: no experiment here has a setting {key!r}")
        values = wanted.split(",")
        unknown = [value for value in values if value not in known]
        if unknown:
            raise BadInput(f"--only {condition}: {key} is {', '.join(known)} here")
        left = [case for case in left if str(case.says(key)) in values]
    if not left:
        raise BadInput(f"--only {' --only '.join(only)}: no experiment is all of that")
    return left
