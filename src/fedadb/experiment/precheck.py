"""Checks settings without importing torch, so that a mistake is answered at once.

Algorithms, models and optimisers need torch, but their fields do not. So the fields are read from
the source: the annotated assignments of a class, executed by themselves, make a dataclass with the
same types, bounds and defaults. What cannot be checked in this way is left to the full check.
"""

import ast
import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ValidationError

from fedadb.core.errors import BadInput
from fedadb.core.schedules import SCHEDULES, Exponential, Schedule
from fedadb.experiment import validation
from fedadb.experiment.presets import complete
from fedadb.experiment.settings import Settings
from fedadb.exports import FEDOPT, algorithm_names
from fedadb.roles import Searched

PACKAGE = Path(__file__).parent.parent
SERVER_OPTIMIZERS = PACKAGE / "core" / "server_optimizers.py"
NAMESPACE = {
    "Annotated": Annotated, "Literal": Literal, "Ge": Ge, "Gt": Gt, "Le": Le, "Lt": Lt,
    "Searched": Searched,
    # of the local plan; its optimiser is checked by itself
    "Optimizer": Any, "SGD": lambda: None, "Schedule": Schedule, "Exponential": Exponential,
}  # fmt: skip


NEED_TORCH = (
    "model",
    "local",
    "algorithm",
    "filter",
    "attack",
)  # settings that are no fields of Settings


def precheck(given: Mapping[str, Any]) -> None:
    """Raise BadInput if the table of an experiment has a mistake that is found without torch."""
    table = complete(given)
    own = {key: table.pop(key) for key in NEED_TORCH if key in table}
    for key in table:
        if key not in Settings.model_fields:
            known = [*Settings.model_fields, *NEED_TORCH]
            raise BadInput(f"{key} is not a setting; {validation.suggest(key, known)}")
    try:
        Settings(**table)
    except ValidationError as error:
        raise BadInput(validation.explain(error, "", Settings)) from error
    if "local" in own:
        _check_local(own["local"])
    if isinstance(table.get("server"), dict) and isinstance(table["server"].get("optimizer"), dict):
        given, registry = table["server"]["optimizer"], server_optimizers()
        if not validation.is_none(given, "server.optimizer", registry):
            _check_named("server.optimizer", given, registry)
    filters = own.get("filter", [])
    named = [
        ("algorithm", own.get("algorithm"), algorithms() | server_methods()),
        ("model", own.get("model"), models()),
    ]
    attack = own.get("attack")
    if not validation.is_none(attack, "attack", registered("attacks")):
        named.append(("attack", attack, registered("attacks")))
    if isinstance(filters, list):
        named += [(f"filter.{i}", one, registered("filters")) for i, one in enumerate(filters)]
    for key, value, registry in named:
        if isinstance(value, (str, dict)):
            _check_named(key, value, registry)


def _check_local(given: Any) -> None:
    if isinstance(given, dict):
        given = dict(given)
        if isinstance(given.get("optimizer"), dict):
            _check_named("local.optimizer", given["optimizer"], optimizers())
        schedule = given.get("schedule")
        if isinstance(schedule, dict) and ":" not in str(schedule.get("name")):
            given["schedule"] = validation.to_named(SCHEDULES, schedule, "local.schedule")
        else:
            given.pop("schedule", None)
    if plan := declared(PACKAGE / "core" / "data.py", "LocalPlan"):
        validation.to_dataclass(plan, given, "local")


def _check_named(key: str, given: str | Mapping[str, Any], registry: Mapping[str, Path]) -> None:
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = table.pop("name", None)
    if not isinstance(name, str) or ":" in name:
        return
    if name not in registry:
        raise BadInput(f"{key} = {name!r}: is not known; {validation.suggest(name, registry)}")
    if cls := declared(registry[name], _class_of(name, registry[name])):
        validation.to_dataclass(cls, table, key)


def algorithms() -> dict[str, Path]:
    """The file of each registered algorithm."""
    names = [name.lower() for name in algorithm_names()]
    return {name: PACKAGE / "algorithms" / f"{name}.py" for name in names}


def server_methods() -> dict[str, Path]:
    """The file with the settings of each method that is FedAvg with a server optimiser."""
    return dict.fromkeys(_classes_of_server_methods(), SERVER_OPTIMIZERS)


def _classes_of_server_methods() -> dict[str, str]:
    return {name.lower(): optimizer for name, optimizer in FEDOPT.items()}


def models() -> dict[str, Path]:
    """The file of each registered model."""
    return registered("models")


def registered(package: str) -> dict[str, Path]:
    """The file of each class in the registry of the package, by its registered name."""
    folder = PACKAGE / package
    tree = _parsed(folder / "__init__.py")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    files = {
        alias.name: folder / f"{str(node.module).rpartition('.')[2]}.py"
        for node in imports
        for alias in node.names
    }
    registry = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    return {
        str(key.value): files[value.id]
        for key, value in zip(registry.keys, registry.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name)
    }


def optimizers() -> dict[str, Path]:
    """The file of each registered local optimiser."""
    return _registered_in(PACKAGE / "core" / "optimizers.py")


def server_optimizers() -> dict[str, Path]:
    """The file of each registered server optimiser."""
    return _registered_in(SERVER_OPTIMIZERS)


def _registered_in(path: Path) -> dict[str, Path]:
    """The names in the registry at the end of the file."""
    *_, registry = (node for node in _parsed(path).body if isinstance(node, ast.AnnAssign))
    assert isinstance(registry.value, ast.Dict)
    return {str(key.value): path for key in registry.value.keys if isinstance(key, ast.Constant)}


def _class_of(name: str, path: Path) -> str:
    """The class in the file whose name, in lower case, is the registered one without underscores.

    The name of a server optimiser's class begins with Server.
    """
    if path == SERVER_OPTIMIZERS and name in (named := _classes_of_server_methods()):
        return named[name]
    classes = [node.name for node in _parsed(path).body if isinstance(node, ast.ClassDef)]
    plain = name.replace("_", "")
    return next((cls for cls in classes if cls.lower().removeprefix("server") == plain), "")


@cache
def declared(path: Path, name: str) -> type[Any] | None:
    """A dataclass with the fields of the class of that name in the file.

    None if there is no such class, or if a field's type is defined elsewhere.
    """
    found = [n for n in _parsed(path).body if isinstance(n, ast.ClassDef) and n.name == name]
    if not found:
        return None
    body: list[ast.stmt] = [
        statement
        for one in (*_bases(found[0], path), found[0])
        for statement in one.body
        if isinstance(statement, ast.AnnAssign)
        and not ast.unparse(statement.annotation).startswith("ClassVar")  # it is no field
    ]
    cls = ast.ClassDef(name, bases=[], keywords=[], body=body or [ast.Pass()], decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([cls], type_ignores=[]))
    namespace: dict[str, Any] = dict(NAMESPACE)
    try:
        exec(compile(module, str(path), "exec"), namespace)  # our own source, without its methods
    except NameError:
        return None
    return dataclasses.dataclass(frozen=True)(namespace[name])


def _bases(cls: ast.ClassDef, path: Path) -> list[ast.ClassDef]:
    """The base classes in the same file."""
    names = {base.id for base in cls.bases if isinstance(base, ast.Name)}
    return [n for n in _parsed(path).body if isinstance(n, ast.ClassDef) and n.name in names]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
