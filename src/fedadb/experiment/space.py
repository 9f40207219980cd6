"""Search spaces: which settings a search varies, and which of their values it tries."""

import itertools
import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from fedadb.algorithms.fedopt import FedOpt
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import LEARNING_RATE
from fedadb.experiment.toml_tables import assign, flatten
from fedadb.experiment.validation import suggest
from fedadb.models.own import GivenBody
from fedadb.roles import Searched, searched_fields

Dimension: TypeAlias = Searched | tuple[Any, ...]  # a range, or the values to choose from
Space: TypeAlias = Mapping[str, Dimension]  # by the dotted name of the setting
Values: TypeAlias = dict[str, Any]

ROUNDING = 0.15  # the largest error of a value that is rounded, in steps between values
FIRST = 4  # values of the first setting that every search begins with
# Runs that differ in other settings, such as the data or the number of rounds, cannot be compared
# by their validation accuracy.
SEARCHABLE = ("local.", "algorithm.", "server.", "filter.", "model.")


def declared_space(experiment: Experiment) -> dict[str, Dimension]:
    """The learning rate, and what the algorithm itself declares as worth searching."""
    algorithm: Any = experiment.algorithm
    own = algorithm.optimizer if isinstance(algorithm, FedOpt) else algorithm
    return {
        LEARNING_RATE: searched_fields(LocalPlan)["lr"],
        **{f"algorithm.{name}": found for name, found in searched_fields(type(own)).items()},
    }


def given_space(
    assignments: Sequence[str], experiments: Sequence[Experiment]
) -> dict[str, Dimension]:
    """The space of assignments such as `local.lr=0.003..0.1` or `local.lr=0.01,0.03`.

    A range ends in `linear` or `log` if its scale is not the declared one: `0.1..0.9 linear`.
    """
    settings = dict.fromkeys(key for e in experiments for key in flatten(e.table()))
    known = [k for k in settings if k.startswith(SEARCHABLE) and k != "algorithm.name"]
    declared = {key: found for e in experiments for key, found in declared_space(e).items()}
    space: dict[str, Dimension] = {}
    for assignment in assignments:
        key, _, text = (part.strip() for part in assignment.partition("="))
        where = f"--search {assignment}"
        if not key or not text:
            raise BadInput(f"{where}: must be KEY=LOW..HIGH or KEY=VALUE,VALUE,…")
        if key not in known:
            raise BadInput(f"{where}: {key} cannot be searched; {suggest(key, known)}")
        if key in space:
            raise BadInput(f"{where}: {key} is given twice")
        is_range = ".." in text
        space[key] = _range(text, declared.get(key), where) if is_range else _choices(text, where)
    return space


def space_of(
    experiment: Experiment, given: Space, fixed: Collection[str] = ()
) -> dict[str, Dimension]:
    """What a search for this experiment varies: the given settings that it has, or the declared.

    Settings that the user has fixed are left out.
    """
    name, settings = experiment.algorithm.name, flatten(experiment.table())
    both = [key for key in given if key in fixed]
    if both:
        raise BadInput(f"{both[0]} is both set and searched; leave out one of the two")
    wanted = given or declared_space(experiment)
    space = {k: _whole(experiment, k, d) for k, d in wanted.items() if k in settings}
    space = {key: dimension for key, dimension in space.items() if key not in fixed}
    if not space:
        fixes = [key for key in wanted if key in fixed]
        why = f"{', '.join(fixes)} is fixed" if fixes else f"{name} has none of {', '.join(wanted)}"
        raise BadInput(f"{name}: there is nothing to search: {why}")
    return space


def _whole(experiment: Experiment, key: str, dimension: Dimension) -> Dimension:
    """The dimension; of a setting with whole numbers, the range of whole numbers in it."""
    if not isinstance(dimension, Searched) or not is_whole(experiment, key):
        return dimension
    try:
        return Searched(math.ceil(dimension.low), math.floor(dimension.high), dimension.scale)
    except ValueError as error:
        raise BadInput(f"{key}: needs a range of whole numbers: {error}") from error


def _range(text: str, declared: Dimension | None, where: str) -> Searched:
    numbers, _, scale = text.partition(" ")
    low, _, high = numbers.partition("..")
    try:
        ends = float(low), float(high)
    except ValueError:
        raise BadInput(f"{where}: both ends must be numbers, as in 0.003..0.1") from None
    if not scale:
        scale = declared.scale if isinstance(declared, Searched) else "log"
    if scale.strip() not in ("log", "linear"):
        raise BadInput(f"{where}: the scale {scale.strip()!r} is not known; it is log or linear")
    try:
        return Searched(*ends, scale=scale.strip())  # type: ignore[arg-type]
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from error


def _choices(text: str, where: str) -> tuple[Any, ...]:
    values = []
    for word in text.split(","):
        try:
            value = tomllib.loads(f"value = {word}")["value"]
        except ValueError:
            value = word.strip()  # a word needs no quotes here
        if not isinstance(value, (bool, int, float, str)) or value == "":
            raise BadInput(f"{where}: values must be numbers or words, separated by commas")
        values.append(value)
    return tuple(dict.fromkeys(values))


def with_values(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of its settings."""
    table = experiment.table()
    # Data and modules in memory cannot be read back by their names.
    table |= {"dataset": experiment.dataset}
    if isinstance(experiment.model, GivenBody):
        table |= {"model": experiment.model}
    for key, value in values.items():
        table = assign(table, key, value)
    return Experiment.read(table)


def points(dimension: Dimension, n: int, whole: bool = False) -> list[Any]:
    """Evenly spaced values of a range, on its scale and with its ends, or all values of a choice.

    The values in between have few digits: 0.003, 0.01, 0.03, 0.1.
    """
    if not isinstance(dimension, Searched):
        return list(dimension)
    low, high, log = dimension.low, dimension.high, dimension.scale == "log"
    start, end = (math.log(low), math.log(high)) if log else (low, high)
    step = (end - start) / (n - 1)
    values: list[Any] = [inside(low, dimension, whole)]
    for i in range(1, n - 1):
        exact = math.exp(start + i * step) if log else start + i * step
        values.append(inside(_short(exact, step, log), dimension, whole))
    return list(dict.fromkeys([*values, inside(high, dimension, whole)]))


def _short(value: float, step: float, log: bool) -> float:
    """The value with as few digits as possible, but off by no more than a part of the step."""
    for digits in range(1, 17):
        short = float(f"{value:.{digits}g}")
        off = math.log(short / value) if log else short - value
        if abs(off) <= ROUNDING * step:
            break
    return short


def inside(value: Any, dimension: Dimension, whole: bool = False) -> Any:
    """The value, or the nearest one that the dimension has; of no number, one in the middle."""
    if not isinstance(dimension, Searched):
        return value if value in dimension else dimension[0]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        value = points(dimension, 3, whole)[1]
    value = min(max(value, dimension.low), dimension.high)
    return round(value) if whole else float(value)


def is_whole(experiment: Experiment, key: str) -> bool:
    """Whether the setting's values are whole numbers."""
    value = flatten(experiment.table())[key]
    return isinstance(value, int) and not isinstance(value, bool)


def first_values(experiment: Experiment, space: Space, budget: int) -> list[Values]:
    """What every search begins with: values of the first setting, the others as they are.

    The values next to the middle come first: a small budget tries the likeliest.
    """
    key, dimension = next(iter(space.items()))
    values = points(dimension, FIRST, is_whole(experiment, key))
    if not isinstance(dimension, Searched) and len(values) > budget:
        raise BadInput(
            f"--budget {budget}: is below the number of choices; {key} has {len(values)} values"
        )
    settings = flatten(experiment.table())
    others = {
        k: inside(settings[k], d, is_whole(experiment, k)) for k, d in space.items() if k != key
    }
    middle = (len(values) - 1) / 2
    order = sorted(range(len(values)), key=lambda i: abs(i - middle))
    return [{key: values[i], **others} for i in order[:budget]]


def grid(experiment: Experiment, space: Space, budget: int) -> list[Values]:
    """Every combination of as many values of each range as the budget allows."""
    ranges = [key for key, dimension in space.items() if isinstance(dimension, Searched)]
    choices = math.prod(len(d) for d in space.values() if not isinstance(d, Searched))
    fewest = choices * 2 ** len(ranges)
    if fewest > budget:
        words = ", ".join(space)
        raise BadInput(
            f"--budget {budget}: is below the number of choices; a grid over {words} of "
            f"{experiment.algorithm.name} has at least {fewest}: raise the budget, or name fewer "
            "settings with --search"
        )
    n = 2
    while ranges and choices * (n + 1) ** len(ranges) <= budget:
        n += 1
    values = [points(d, n, is_whole(experiment, key)) for key, d in space.items()]
    return [
        dict(zip(space, combination, strict=True)) for combination in itertools.product(*values)
    ]


def require_possible(experiment: Experiment, space: Space) -> None:
    """Raise BadInput if the experiment does not take a value of the space."""
    settings = flatten(experiment.table())
    whole = {key: is_whole(experiment, key) for key in space}
    others = {key: inside(settings[key], d, whole[key]) for key, d in space.items()}
    for key, dimension in space.items():
        extremes: tuple[Any, ...]
        match dimension:
            case Searched(low, high):
                extremes = low, high
            case values:
                extremes = values
        for value in extremes:
            with_values(experiment, others | {key: inside(value, dimension, whole[key])})
