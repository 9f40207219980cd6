"""The setting `model`: a registered architecture, or the user's own code in one of four forms."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fedadb.core.errors import BadInput
from fedadb.experiment import validation
from fedadb.models import MODELS, Architecture
from fedadb.models.own import GivenBody, MadeBody


def to_model(given: Any) -> Architecture:
    """The architecture that the setting `model` describes.

    Args:
        given: A name, or a table with a name and settings. In Python also an nn.Module, a class of
            nn.Module, a function that returns an nn.Module, or a dataclass with `body(shape)`. The
            last three are named `module:Name` in a table.
    """
    if isinstance(given, (MadeBody, GivenBody)):
        return given
    if isinstance(given, nn.Module):
        return GivenBody(given)
    if _makes_modules(given):
        return _made(given, {}, validation.own_name(given))
    table = {"name": given} if isinstance(given, str) else given
    name = table.get("name") if isinstance(table, Mapping) else None
    if not isinstance(name, str) or ":" not in name:
        model: Architecture = validation.to_named(MODELS, given, "model")
        return model
    if "@" in name:
        raise BadInput(
            f"model = {name!r}: was a module in memory, not in a file; use Python, and pass the "
            "same module"
        )
    own = validation.imported(name, "model")
    settings = {key: value for key, value in table.items() if key != "name"}
    if _makes_modules(own):
        return _made(own, settings, name)
    if not (isinstance(own, type) and dataclasses.is_dataclass(own) and hasattr(own, "body")):
        raise BadInput(
            f"model = {name!r}: must be a class of nn.Module, a function that returns an "
            "nn.Module, or a dataclass with body(shape)"
        )
    own_class: type[Any] = own
    made: Architecture = validation.to_dataclass(own_class, settings, "model")
    return made


def model_table(model: Architecture) -> dict[str, Any]:
    """The table from which `to_model` makes an equal model, if it is not a module in memory."""
    if isinstance(model, MadeBody):
        plain = {key: "none" if value is None else value for key, value in model.settings.items()}
        return {"name": model.name, **plain}
    if isinstance(model, GivenBody):
        return {"name": f"{validation.own_name(model.kinds[0])}@{model.digest[:16]}"}
    return validation.to_named_table(MODELS, model)


def own_sources(part: Any) -> list[Any]:
    """The classes or the function whose sources are those of a part of an experiment."""
    if isinstance(part, MadeBody):
        return [part.make]
    return [*part.kinds] if isinstance(part, GivenBody) else [type(part)]


def _makes_modules(given: Any) -> bool:
    return inspect.isfunction(given) or (isinstance(given, type) and issubclass(given, nn.Module))


def _made(make: Callable[..., nn.Module], given: Mapping[str, Any], name: str) -> MadeBody:
    """A body made with these settings, which must fit the parameters of its class or function."""
    settings = {key: None if value == "none" else value for key, value in given.items()}
    parameters = inspect.signature(make).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for key in settings:
        if not takes_any and key not in {p.name for p in named}:
            known = validation.suggest(key, [p.name for p in named])
            raise BadInput(f"model.{key} is not a setting of {name}; {known}")
    for p in named:
        if p.default is p.empty and p.name not in {*settings, "shape"}:
            raise BadInput(
                f"model.{p.name} is missing: {name} needs it; "
                f'use {{name = "{name}", {p.name} = …}}, or give it a default'
            )
    return MadeBody(make, settings, name)
