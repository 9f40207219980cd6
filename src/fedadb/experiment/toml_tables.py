"""Tables of settings: reading TOML, merging, and dotted names."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput

# Tables that may be abbreviated to their name: `model = "lenet"`.
NAMED = ("model", "partition", "algorithm")


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
    return merge(given, nested(key.strip(), value))


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


def flatten(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """{a: {b: v}} as {"a.b": v}."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
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
