"""Tables of settings: reading TOML, merging, and dotted names."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput

# Tables that may be abbreviated to their name: `model = "lenet"`.
NAMED = ("model", "partition", "algorithm", "optimizer", "schedule", "attack")

# Settings that had another name in earlier versions: files and commands with it still work.
RENAMED = {
    "local.momentum": "local.optimizer.momentum",
    "local.lr_decay": "local.schedule.decay",
    "algorithm.clip": "local.clip",
}
# The algorithms that had a setting `clip` of their own, and its default, which is now "auto".
CLIPPING = {"feddyn": "none", "fedgela": 20.0, "fedacg": "none"}
# Settings that earlier versions wrote, with the value that changed nothing.
RETIRED = {"deployment.norm_bound": "none"}
# Settings that earlier versions did not write, with the value that describes their runs.
ADDED = {
    "validation": 0.0,
    "local": {
        "optimizer": {"name": "sgd", "nesterov": False},
        "schedule": {"name": "exponential"},
        "warmup": 0,
        "clip": "auto",
    },
    "server": {"optimizer": {"name": "none"}},
    "filter": [],
}


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The table of a TOML text; `source` names it in errors."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise BadInput(f"{source} is not TOML: {error}") from error


def load_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def override(given: dict[str, Any], assignment: str) -> dict[str, Any]:
    """The table with one assignment such as `local.lr=0.05` applied."""
    key, equals, text = assignment.partition("=")
    if not key or not equals:
        raise BadInput(f"--set {assignment!r}: must be KEY=VALUE, such as local.lr=0.05")
    if "\n" in assignment:
        raise BadInput(f"--set {assignment!r}: must be one line; use --set once per key")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except RecursionError as error:
        raise BadInput(f"--set {key}=…: is nested too deeply") from error
    except ValueError:  # not TOML, or a number of thousands of digits
        number = _to_float(text)
        value = text.strip() if number is None else number  # a word needs no quotes here
    return assign(given, key.strip(), value)


def _to_float(text: str) -> float | None:
    """A number that Python accepts and TOML does not, such as .01."""
    try:
        return float(text)
    except ValueError:
        return None


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The table `above` over the table `below`, key by key.

    A named table replaces one that has another name: settings of FedAvg do not carry over to
    FedProx.
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if key in NAMED:
            under, value = ({"name": v} if isinstance(v, str) else v for v in (under, value))
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            both = "name" in under and "name" in value
            another = both and under["name"] != value["name"]
            value = dict(value) if another else merge(under, value)
        merged[key] = value
    return merged


def assign(table: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The table with one setting, by its dotted name, set over what the table has."""
    # A setting that left the algorithm's table stays in it, since it may be for one of several
    # algorithms; `renamed` moves it when the algorithm is known.
    if not key.startswith("algorithm."):
        key = RENAMED.get(key, key)
    for old in _earlier_names(table):
        if RENAMED[old] == key:
            table = _without(table, old)
    return merge(table, nested(key, value))


def renamed(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with today's names only; BadInput if it has a setting under both names."""
    for old, value in RETIRED.items():
        if _find(table, old) == value:
            table = _without(table, old)
    for old in _earlier_names(table):
        new, value = RENAMED[old], _find(table, old)
        holder = _find(table, new.rpartition(".")[0])
        given_as_object = holder is not None and not isinstance(holder, (str, Mapping))
        if given_as_object or _find(table, new) not in (None, "auto"):
            raise BadInput(f"{old} is the earlier name of {new}, which is given too; give that one")
        if old == "algorithm.clip" and value == CLIPPING[_find(table, "algorithm.name")]:
            value = "auto"
        table = merge(_without(table, old), nested(new, value))
    return dict(table)


def up_to_date(table: Mapping[str, Any]) -> dict[str, Any]:
    """A run's table, which any version may have written, as this version writes it."""
    return merge(ADDED, renamed(table))


def _earlier_names(table: Mapping[str, Any]) -> list[str]:
    """The settings that the table has under an earlier name."""
    clips = _find(table, "algorithm.name") in list(CLIPPING)
    found = [old for old in RENAMED if _find(table, old) is not None]
    return [old for old in found if clips or old != "algorithm.clip"]


def _find(table: Any, key: str) -> Any:
    """The value of a dotted name; None if the table has none."""
    for name in key.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _without(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    if rest:
        return {**table, first: _without(table[first], rest)}
    return {name: value for name, value in table.items() if name != first}


def flatten(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """{a: {b: v}} as {"a.b": v}; the tables of a list have their positions as names."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            value = {str(i): v for i, v in enumerate(value)}
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{path}{key}.")
        else:
            leaves[path + key] = value
    return leaves


def nested(key: str, value: Any) -> dict[str, Any]:
    """`a.b` and v as {a: {b: v}}."""
    for name in reversed(key.split(".")):
        value = {name: value}
    table: dict[str, Any] = value
    return table
