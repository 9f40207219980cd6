"""Studies: several experiments that belong together, such as a table of the paper.

    title = "…"
    analyse = ["hessian"]        # analyses of its runs, if any
    [experiment]                 # settings that all experiments share
    [vary]                       # settings that all grids vary: setting = [values]
    seed = [0, 1, 2]
    [[grid]]                     # every combination of its own values and those of [vary]
    dataset = ["svhn", "organamnist"]

A study consists of the experiments of all its grids; an experiment that occurs twice counts once.
A grid's own values of a setting replace those of [vary].
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.core.schedules import shortened
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.presets import scenario
from fedadb.experiment.toml_tables import (
    NAMED,
    RENAMED,
    assign,
    flatten,
    load_toml,
    merge,
    override,
)
from fedadb.experiment.validation import near_settings, suggest

KEYS: dict[str, tuple[type, str]] = {  # the type of each key of a study, and its name in errors
    "title": (str, "text"),
    "analyse": (list, "a list of analyses"),
    "experiment": (dict, "a table"),
    "vary": (dict, "a table"),
    "grid": (list, "[[grid]] tables"),
}


@dataclass(frozen=True)
class Study:
    """Experiments to run, and analyses of the finished runs."""

    title: str
    experiments: Sequence[Experiment]
    analyses: Sequence[str] = ()
    varied: frozenset[str] = frozenset()  # the settings that differ between the experiments


def read_study(path: Path, settings: Sequence[str] = (), scale: float = 1.0) -> Study:
    """Read a study from a file.

    Args:
        path: The TOML file.
        settings: Assignments such as `local.lr=0.05` that apply to all experiments.
        scale: The share of each experiment's rounds to run.
    """
    table = load_toml(path)
    for key, value in table.items():
        if key not in KEYS:
            raise BadInput(f"{path}: {key} is not a key of a study; {suggest(key, KEYS)}")
        kind, name = KEYS[key]
        if not isinstance(value, kind):
            raise BadInput(f"{path}: {key} must be {name}")
    if not table.get("grid"):
        raise BadInput(f"{path} has no [[grid]]: it varies nothing")
    vary = table.get("vary", {})
    found: dict[str, Experiment] = {}
    varied: set[str] = set()
    for grid in table["grid"]:
        axes = {**grid, **vary, **grid}  # in the order of the first two, with the grid's values
        varied |= {RENAMED.get(axis, axis) for axis in axes}
        for setting in settings:
            name = setting.partition("=")[0].strip()
            if RENAMED.get(name, name) in {RENAMED.get(axis, axis) for axis in axes}:
                raise BadInput(f"--set {setting}: the study varies {name}; select with --only")
        for chosen in combinations(axes, str(path)):
            given = table.get("experiment", {})
            for key, value in chosen.items():
                given = assign(given, key, value)
            for setting in settings:
                given = override(given, setting)
            experiment = scaled(Experiment.read(given), scale)
            found.setdefault(run_name(experiment), experiment)
    title, analyses = table.get("title", path.stem), table.get("analyse", ())
    return Study(title, list(found.values()), analyses, frozenset(varied))


def combinations(axes: Mapping[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """Every combination of the axes' values."""
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
    """The experiment with a share of its rounds, in which the learning rate falls as far as in all.

    Some algorithms, such as FedADB, have schedules in t/T; the learning rate is rescaled likewise.
    A schedule of one's own has to follow the number of rounds by itself.
    """
    if scale == 1:
        return e
    rounds = max(1, round(scale * e.rounds))
    times = e.rounds / rounds
    schedule = shortened(e.local.schedule, times)
    local = replace(e.local, schedule=schedule, warmup=round(e.local.warmup / times))
    return Experiment.read({**e.table(), "rounds": rounds, "local": local})


def setting_of(experiment: Experiment, key: str) -> Any:
    """A setting by its name or the end of it: `alpha` is `federation.partition.alpha`."""
    return find_setting(flatten(experiment.table()), key)


def find_setting(settings: Mapping[str, Any], key: str) -> Any:
    """One of the flat settings by its name or the end of it; None if there is none."""
    if key in ("scenario", "federation.scenario"):
        return scenario(settings)
    if f"{key}.name" in settings and key in NAMED:
        return settings[f"{key}.name"]
    ends = [name for name in settings if name == key or name.endswith(f".{key}")]
    # FedDyn also has an alpha; settings that all methods share take precedence.
    ends.sort(key=lambda name: name.startswith("algorithm."))
    return settings[ends[0]] if ends else None


def select(experiments: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """The experiments that meet all conditions `KEY=VALUE[,VALUE…]`."""
    left = list(experiments)
    for condition in only:
        key, equals, wanted = condition.partition("=")
        if not equals:
            raise BadInput(f"--only {condition}: must be KEY=VALUE, such as dataset=organamnist")
        known = list(dict.fromkeys(setting_of(e, key) for e in experiments))
        if known == [None]:
            near = near_settings(key)
            hint = "; possible are dataset, algorithm, scenario, alpha, seed and all settings"
            if near and key not in near:
                hint = f"; did you mean {' or '.join(near)}?"
            raise BadInput(f"--only {condition}: no experiment here has a setting {key!r}{hint}")
        values = [_matching(value, known) for value in wanted.split(",")]
        if None in values:
            found = ", ".join(str(value) for value in known if value is not None)
            raise BadInput(f"--only {condition}: the values of {key} here are {found}")
        left = [e for e in left if setting_of(e, key) in values]
    if not left:
        raise BadInput(
            f"--only {' --only '.join(only)}: no experiment meets all conditions; separate several "
            "values of one key by commas: dataset=a,b"
        )
    return left


def _matching(text: str, known: Sequence[Any]) -> Any:
    """The known value that the text stands for; numbers match however they are written."""
    for value in known:
        if text == str(value) or (isinstance(value, bool) and text == str(value).lower()):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with suppress(ValueError):
                if float(text) == value:
                    return value
    return None


def compare(
    given: Mapping[str, Any], algorithms: Sequence[str], seeds: Sequence[int]
) -> list[Experiment]:
    """One experiment with each combination of algorithms and seeds.

    Settings in the table `algorithm` apply to the algorithm that the table names, and to no other.
    """
    for word, values in (("algorithm", algorithms), ("seed", seeds)):
        if len(set(values)) < len(values):
            twice = next(v for v in values if values.count(v) > 1)
            raise BadInput(f"{word} {twice} is given twice")
    table = merge({"algorithm": {}}, given)["algorithm"]
    settings = sorted(table.keys() - {"name"}) if isinstance(table, Mapping) else []
    if settings and "name" not in table and len(algorithms) == 1:
        given = merge(given, {"algorithm": {"name": algorithms[0]}})
    elif settings and table.get("name") not in algorithms:
        whose = f"is for {table['name']}" if "name" in table else "does not say for which algorithm"
        raise BadInput(
            f"algorithm.{settings[0]} {whose}; set algorithm.name to one of {', '.join(algorithms)}"
        )
    return [
        Experiment.read(merge(given, {"algorithm": {"name": algorithm}, "seed": seed}))
        for algorithm in algorithms
        for seed in seeds
    ]
