"""The reference of all settings, from the fields that hold them."""

import dataclasses
import inspect
import json
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tomli_w
from annotated_types import Ge, Gt, Le, Lt

from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.attacks import ATTACKS
from fedadb.core.optimizers import OPTIMIZERS
from fedadb.core.schedules import SCHEDULES
from fedadb.core.server_optimizers import SERVER_OPTIMIZERS
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import role
from fedadb.filters import FILTERS
from fedadb.models import MODELS
from fedadb.partition import PARTITIONS
from fedadb.roles import Searched
from website.field_comments import field_comment

OPENING = """# Settings

Every setting of an experiment, from the fields that hold it. [Experiments and
runs](../quickstart.md) explains how to give them, and which defaults depend on the dataset.

- **changes:** what a setting can change: the results, only what is recorded beside them, only
  their rounding, or nothing but how a run is carried out. A run can resume with other values of
  settings that change nothing.
- **agreed:** the server and the sites of a real federation must have the same value.
"""
NAMED: Mapping[str, Mapping[str, type[Any]]] = {
    "model": MODELS,
    "federation.partition": PARTITIONS,
    "local.optimizer": OPTIMIZERS,
    "local.schedule": SCHEDULES,
    "server.optimizer": SERVER_OPTIMIZERS,
    "algorithm": {**ALGORITHMS, **SERVER_METHODS},
    "filter": FILTERS,
    "attack": ATTACKS,
}
BOUNDS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}


class Field(NamedTuple):
    """A field of a class that has settings."""

    name: str
    hint: Any  # its type, with bounds and roles
    default: Any
    meaning: str


def settings_page() -> str:
    """The page as Markdown."""
    lines = [OPENING, "## The experiment\n"]
    tables = {f.name: f.default for f in _fields(Experiment) if f.name in _tables()}
    lines += _table("", [f for f in _fields(Experiment) if f.name not in tables])
    for name, default in tables.items():
        lines += [f"## [{name}]\n", *_table(f"{name}.", _fields(type(default)))]
    for key, registry in NAMED.items():
        lines += [f"## {key} by name\n"]
        for name, cls in registry.items():
            lines += [f'### {key} = "{name}"\n', _summary(cls)]
            fields = _fields(cls)
            lines += _table("", fields, key) if fields else ["It has no settings.\n"]
    return "\n".join(lines)


def _tables() -> list[str]:
    """The settings that are tables of settings."""
    return [
        name
        for name, field in Experiment.model_fields.items()
        if dataclasses.is_dataclass(field.default) and name not in NAMED
    ]


def _fields(cls: Any) -> list[Field]:
    hints = get_type_hints(cls, include_extras=True)
    if dataclasses.is_dataclass(cls):
        defaults = {f.name: _default(f) for f in dataclasses.fields(cls)}
    else:
        defaults = {name: field.default for name, field in cls.model_fields.items()}
    return [
        Field(name, hints[name], default, _meaning(cls, name)) for name, default in defaults.items()
    ]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _meaning(cls: Any, name: str) -> str:
    """The comment of a field, in the class that declares it last."""
    for owner in cls.__mro__:
        if name in inspect.get_annotations(owner):
            lines = inspect.getsource(owner).splitlines()
            first = next(n for n, line in enumerate(lines, 1) if line.startswith(f"    {name}: "))
            last = first
            while lines[last - 1].count("(") > lines[last - 1].count(")"):
                last += 1
            return field_comment(lines, first, last)
    raise ValueError(f"{cls.__name__} declares no field {name}")


def _summary(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split()) + "\n"


def _table(prefix: str, fields: list[Field], key: str = "") -> Iterator[str]:
    yield "| key | meaning | default | allowed | changes |"
    yield "| --- | --- | --- | --- | --- |"
    for field in fields:
        one = role(f"{key}.{field.name}" if key else f"{prefix}{field.name}")
        cells = [
            f"`{prefix}{field.name}`",
            field.meaning,
            _shown(field.default),
            _allowed(field.hint),
            f"{one.affects}; agreed" if one.shared else one.affects,
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _shown(default: Any) -> str:
    if default is dataclasses.MISSING:
        return "required"
    if default is None:
        return '`"none"`'
    if dataclasses.is_dataclass(default):
        registry = next(r for r in NAMED.values() if type(default) in r.values())
        name = next(name for name, cls in registry.items() if cls is type(default))
        return f'`"{name}"`'
    if isinstance(default, (tuple, Mapping)):
        return f"`{json.dumps(default)}`"  # as in TOML, if it has no entries or is a list
    return f"`{tomli_w.dumps({'x': default}).strip().removeprefix('x = ')}`"


def _allowed(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *metadata = get_args(hint)
        bounds = [
            f"{BOUNDS[type(one)]} {dataclasses.astuple(one)[0]:g}"
            for one in metadata
            if type(one) in BOUNDS
        ]
        searched = [
            f"searched from {one.low:g} to {one.high:g}"
            for one in metadata
            if isinstance(one, Searched)
        ]
        return ", ".join([" and ".join([_allowed(inner), *bounds]), *searched])
    if origin is Literal:
        return ", ".join(_shown(value) for value in get_args(hint))
    if origin in (Union, types.UnionType):
        return ", or ".join(_allowed(one) for one in get_args(hint))
    if origin is tuple:
        return f"a list of: {_allowed(get_args(hint)[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(hint, '`"none"`' if hint is type(None) else "a name or a table")
