"""From TOML tables to checked dataclasses and back.

Errors are one sentence that names the key, the value and what is allowed.
"""

import dataclasses
import difflib
import importlib
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from fedadb.core.errors import BadInput
from fedadb.experiment.declarations import setting_keys
from fedadb.roles import added_defaults

T = TypeVar("T")
PLAIN = {  # pydantic's terms, and the words that people use
    "a valid integer": "a whole number",
    "a valid tuple": "a list, such as [1, 5]",
    "a valid boolean": "true or false",
    "a valid number": "a number",
    "a valid string": "text",
}
STRICT = ConfigDict(
    strict=True, extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
)


def to_dataclass(cls: type[T], given: Any, path: str) -> T:
    """An instance of the dataclass, its fields checked against their types and bounds.

    `given` is a table or already an instance; `path` is the table's key, for errors.
    """
    if isinstance(given, cls):
        given = fields_of(given)
    if not isinstance(given, Mapping):
        raise BadInput(f"{path} = {given!r}: must be a table")
    # TOML has arrays in place of tuples, and no None.
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    values = {key: None if v == "none" else v for key, v in plain.items()}
    checker = _checker(cls)  # type: ignore[arg-type]  # a class is hashable
    try:
        checked = checker.model_validate(values)
    except ValidationError as error:
        raise BadInput(explain(error, path, checker)) from error
    try:
        return cls(**{name: getattr(checked, name) for name in checker.model_fields})
    except TypeError as error:  # the user's own class is abstract
        raise BadInput(f"{path}: {error}") from error
    except BadInput as error:  # two fields contradict each other; the message begins with one
        raise BadInput(f"{path}.{error}") from error


def fields_of(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def to_named(registry: Mapping[str, type[Any]], given: Any, path: str) -> Any:
    """An instance of one of the registry's classes, or of the user's own class `module:Class`.

    `given` is a name, a table with a name, or already an instance.
    """
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return to_dataclass(type(given), given, path)
    if isinstance(given, type):
        raise BadInput(f"{path}: {given.__name__} is a class; give {given.__name__}()")
    if not isinstance(given, (str, Mapping)):
        cls = type(given)
        hint = ""
        if cls.__module__ != "builtins":
            hint = f"; of your own class {cls.__name__}, write @dataclass(frozen=True) above it"
        raise BadInput(f"{path} = {given!r}: must be a name, or a table with a name{hint}")
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = table.pop("name", None)
    if isinstance(name, str) and ":" in name:
        return to_dataclass(_imported_dataclass(name, path), table, path)
    if name is None:
        raise BadInput(f"{path}.name is missing; possible are {', '.join(registry)}")
    if not isinstance(name, str) or name not in registry:
        raise BadInput(f"{path} = {name!r}: is not known; {suggest(name, registry)}")
    return to_dataclass(registry[name], table, path)


def to_named_or_none(registry: Mapping[str, type[Any]], given: Any, path: str) -> Any:
    """As `to_named`, but None for None and for "none"."""
    if given is None or is_none(given, path, registry):
        return None
    return to_named(registry, given, path)


def is_none(given: Any, path: str, registry: Collection[str]) -> bool:
    """Whether a named table is "none"; BadInput if it has settings nevertheless."""
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or table.get("name") != "none":
        return False
    for key, value in table.items():
        if key != "name":
            known = ", ".join(registry)
            raise BadInput(f"{path}.{key} = {value!r}: {path} is none; name one of {known}")
    return True


def to_table(value: Any) -> dict[str, Any]:
    """The dataclass as a TOML table: arrays in place of tuples, and "none" for None.

    A setting that was added later is left out at its default.
    """
    added = added_defaults(type(value))  # type: ignore[arg-type]  # a class is hashable
    plain = {
        key: list(v) if isinstance(v, tuple) else v
        for key, v in fields_of(value).items()
        if key not in added or v != added[key]
    }
    return {key: "none" if v is None else v for key, v in plain.items()}


def to_named_table(registry: Mapping[str, type[Any]], value: Any) -> dict[str, Any]:
    """The table from which `to_named` makes an equal instance."""
    cls = type(value)
    names = {known: name for name, known in registry.items()}
    return {"name": names.get(cls, own_name(cls)), **to_table(value)}


def own_name(made: Any) -> str:
    """The name `module:Name` of the user's own class or function."""
    module = made.__module__
    if module == "__main__":
        module = _script_name(sys.modules["__main__"])
    return f"{module}:{made.__qualname__}"


def _script_name(main: Any) -> str:
    """The name under which a script can be imported."""
    return Path(getattr(main, "__file__", None) or main.__name__).stem


def suggest(name: Any, known: Collection[str]) -> str:
    """Close matches for a name, and all that exist: the end of an error message."""
    if not known:
        return "there are none"
    close = difflib.get_close_matches(str(name).lower(), list(known), n=3)
    hint = f"did you mean {' or '.join(close)}? Possible are" if close else "possible are"
    return f"{hint} {', '.join(known)}"


def unknown_setting(key: str, known: Collection[str]) -> str:
    """The sentence for a dotted name that is none of the known settings of its table."""
    table, _, name = key.rpartition(".")
    if not difflib.get_close_matches(name.lower(), list(known)):
        elsewhere = [one for one in near_settings(key) if one.rpartition(".")[0] != table]
        if elsewhere:
            hint = f"{key} is not a setting; did you mean {' or '.join(elsewhere)}?"
            return f"{hint} Possible here are {', '.join(known) or 'none'}"
    return f"{key} is not a setting; {suggest(name, known)}"


def near_settings(key: str) -> list[str]:
    """Up to three settings, of any table, that may be meant by a dotted name."""
    name, known = key.lower().rpartition(".")[2], setting_keys()
    last = {one: one.rpartition(".")[2] for one in known}
    same = [one for one in known if last[one] == name]
    near = same or difflib.get_close_matches(key.lower(), known)
    if not near:
        names = difflib.get_close_matches(name, set(last.values()), n=1, cutoff=0.8)
        near = [one for one in known if last[one] in names]
    return near[:3]


def explain(error: ValidationError, path: str, model: type[BaseModel]) -> str:
    """The first problem that pydantic found, in one sentence."""
    # A wrong name is named first: it explains why the right one is missing.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, BadInput):
        return str(cause)
    key = _key(path, first["loc"])
    if first["type"] == "extra_forbidden":
        return unknown_setting(key, model.model_fields)
    if first["type"] == "missing":
        return f"{key} is missing"
    same = [e["msg"] for e in error.errors() if _key(path, e["loc"]) == key]  # a union's members
    message = " or ".join([same[0], *(m.removeprefix("Input should be ") for m in same[1:])])
    message = message.replace("Input should be", "must be")
    for jargon, plain in PLAIN.items():
        message = message.replace(jargon, plain)
    return f"{key} = {first['input']!r}: {message}"


def _key(path: str, loc: tuple[int | str, ...]) -> str:
    """The dotted name of what pydantic complains about."""
    # For a union, pydantic also names the member it tried: `tuple[int, ...]`, `constrained-int`.
    parts = [part for part in map(str, (path, *loc)) if part and "[" not in part]
    return ".".join(part for part in parts if not part.startswith("constrained-"))


@cache  # pydantic needs about a millisecond to make one
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


def imported(name: str, path: str) -> Any:
    """The user's own `module:Name`; `path` is the key, for errors."""
    module, _, attribute = name.partition(":")
    main = sys.modules["__main__"]
    # The script that is running is not run a second time, which importing it would do.
    if _script_name(main) == module and hasattr(main, attribute):
        return getattr(main, attribute)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"{path} = {name!r}: cannot be imported: {error}; its file must be in the directory of "
            "the experiment's file, in the working directory of `fedadb run`, or in that of --code"
        ) from error
    except Exception as error:  # the module's own code may raise anything
        raise BadInput(f"{path} = {name!r}: cannot be imported: {error}") from error


def _imported_dataclass(name: str, path: str) -> type[Any]:
    cls = imported(name, path)
    if not dataclasses.is_dataclass(cls):
        raise BadInput(
            f"{path} = {name!r}: is not a dataclass; write @dataclass(frozen=True) above the class"
        )
    return cls  # type: ignore[return-value]
