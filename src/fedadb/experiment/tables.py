"""Tables of a TOML file as dataclasses, and errors that name the key, the value and the way out."""

import dataclasses
import difflib
import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from fedadb.core.errors import BadInput

T = TypeVar("T")
PLAIN = {  # what pydantic says, and what people do
    "a valid integer": "a whole number",
    "a valid tuple": "a list, such as [1, 5]",
    "a valid boolean": "true or false",
    "a valid number": "a number",
    "a valid string": "text",
}
STRICT = ConfigDict(
    strict=True, extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
)


def read(cls: type[T], given: Any, path: str) -> T:
    """An instance of the dataclass, its fields checked against their types and bounds."""
    if isinstance(given, cls):
        given = fields_of(given)
    if not isinstance(given, Mapping):
        raise BadInput(f"{path} = {given!r}: must be a table")
    # TOML has arrays where Python has tuples, and no None.
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    values = {key: None if v == "none" else v for key, v in plain.items()}
    checker = _checker(cls)
    try:
        checked = checker.model_validate(values)
    except ValidationError as error:
        raise BadInput(explain(error, path, checker)) from error
    try:
        return cls(**{name: getattr(checked, name) for name in checker.model_fields})
    except TypeError as error:  # a class of one's own that lacks a hook
        raise BadInput(f"{path}: {error}") from error


def fields_of(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def named(registry: Mapping[str, type[Any]], given: Any, path: str) -> Any:
    """An instance of one of the registry's classes, or of one's own as `module:Class`.

    It is given by its name, by a table with a name, or as the instance itself.
    """
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return read(type(given), given, path)
    if not isinstance(given, (str, Mapping)):
        raise BadInput(f"{path} = {given!r}: must be a name, or a table with a name")
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = table.pop("name", None)
    if isinstance(name, str) and ":" in name:
        return read(_imported(name, path), table, path)
    if not isinstance(name, str) or name not in registry:
        raise BadInput(f"{path} = {name!r}: is not known; {near(name, registry)}")
    return read(registry[name], table, path)


def write(value: Any) -> dict[str, Any]:
    """The dataclass as a table of TOML: arrays for tuples, and "none" for None."""
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in fields_of(value).items()}
    return {key: "none" if v is None else v for key, v in plain.items()}


def write_named(registry: Mapping[str, type[Any]], value: Any) -> dict[str, Any]:
    """The table that `named` reads back."""
    cls = type(value)
    names = {known: name for name, known in registry.items()}
    module = cls.__module__
    if module == "__main__":  # a script: what it is called when it is imported
        module = Path(getattr(sys.modules["__main__"], "__file__", module)).stem
    return {"name": names.get(cls, f"{module}:{cls.__qualname__}"), **write(value)}


def near(name: Any, known: Iterable[str]) -> str:
    """What may have been meant, and what there is."""
    close = difflib.get_close_matches(str(name).lower(), list(known), n=3)
    hint = f"did you mean {' or '.join(close)}? There is" if close else "there is"
    return f"{hint} {', '.join(known) or 'none'}"


def explain(error: ValidationError, path: str, model: type[BaseModel]) -> str:
    """The first thing that is wrong, in one sentence."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, BadInput):
        return str(cause)
    # Of a choice of types pydantic also names the one that it tried, such as `tuple[int, ...]`.
    parts = [str(part) for part in (path, *first["loc"]) if "[" not in str(part)]
    key = ".".join(part for part in parts if part)
    if first["type"] == "extra_forbidden":
        return f"{key} is not a key; {near(first['loc'][-1], model.model_fields)}"
    if first["type"] == "missing":
        return f"{key} is missing"
    message = first["msg"].replace("Input should be", "must be")
    for jargon, plain in PLAIN.items():
        message = message.replace(jargon, plain)
    return f"{key} = {first['input']!r}: {message}"


def _checker(cls: type[Any]) -> type[BaseModel]:
    """A pydantic model with the dataclass's fields."""
    hints = get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        default = ... if f.default is dataclasses.MISSING else f.default
        if f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        fields[f.name] = (hints[f.name], default)
    return create_model(cls.__name__, __config__=STRICT, **fields)


def _imported(name: str, path: str) -> type[Any]:
    """A class of one's own, as `module:Class`."""
    module, _, attribute = name.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module raises when it is imported
        raise BadInput(f"{path} = {name!r}: cannot be imported: {error}") from error
    if not dataclasses.is_dataclass(cls):
        raise BadInput(f"{path} = {name!r}: is not a dataclass")
    return cls  # type: ignore[return-value]
