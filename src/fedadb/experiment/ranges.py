"""The values that a field accepts, in words: from its type and its bounds."""

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomli_w
from annotated_types import Ge, Gt, Le, Lt

KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "none",
}


def describe_values(hint: Any) -> str:
    """Such as "a number above 0, at most 1"; "" for a type that has no words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = " and ".join(text for text in map(_bound, hint.__metadata__) if text)
        return f"{describe_values(arguments[0])} {bounds}".strip()
    if origin in (Union, types.UnionType):
        members = [describe_values(member) for member in arguments]
        return _alternatives(members) if all(members) else ""
    if origin is Literal:
        return _alternatives([to_toml(value) for value in arguments])
    if origin in (tuple, list):
        return f"a list, each {describe_values(arguments[0])}"
    if origin is Mapping:
        return f"a table, each {describe_values(arguments[1])}"
    return KINDS.get(hint, "")


def to_toml(value: Any) -> str:
    """A value as in a TOML file, which has lists in place of tuples and "none" for None."""
    if value is None:
        value = "none"
    if isinstance(value, Mapping) and not value:
        return "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def _alternatives(texts: Sequence[str]) -> str:
    *others, last = texts
    return f"{', '.join(others)} or {last}" if others else last


def _bound(one: Any) -> str:
    match one:
        case Ge(ge=low):
            return f"from {low}"
        case Gt(gt=low):
            return f"above {low}"
        case Le(le=high):
            return f"up to {high}"
        case Lt(lt=high):
            return f"below {high}"
    return ""
