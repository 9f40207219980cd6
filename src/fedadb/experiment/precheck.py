"""Checks settings without importing torch, so that a mistake is answered at once.

Algorithms and models need torch, but their fields do not. So the fields are read from the source:
the annotated assignments of a class, executed by themselves, make a dataclass with the same types,
bounds and defaults. What cannot be checked in this way is left to the full check.
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
from fedadb.experiment import validation
from fedadb.experiment.presets import complete
from fedadb.experiment.settings import Settings

PACKAGE = Path(__file__).parent.parent
NAMESPACE = {"Annotated": Annotated, "Literal": Literal, "Ge": Ge, "Gt": Gt, "Le": Le, "Lt": Lt}


def precheck(given: Mapping[str, Any]) -> None:
    """Raise BadInput if the table of an experiment has a mistake that is found without torch."""
    table = complete(given)
    own = {key: table.pop(key) for key in ("model", "local", "algorithm") if key in table}
    for key in table:
        if key not in Settings.model_fields:
            known = [*Settings.model_fields, "model", "local", "algorithm"]
            raise BadInput(f"{key} is not a setting; {validation.suggest(key, known)}")
    try:
        Settings(**table)
    except ValidationError as error:
        raise BadInput(validation.explain(error, "", Settings)) from error
    if "local" in own and (plan := declared(PACKAGE / "core" / "data.py", "LocalPlan")):
        validation.to_dataclass(plan, own["local"], "local")
    for key, registry in (("algorithm", algorithms()), ("model", models())):
        if key in own and isinstance(own[key], (str, dict)):
            _check_named(key, own[key], registry)


def _check_named(key: str, given: str | dict[str, Any], registry: Mapping[str, Path]) -> None:
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = table.pop("name", None)
    if not isinstance(name, str) or ":" in name:
        return
    if name not in registry:
        raise BadInput(f"{key} = {name!r}: is not known; {validation.suggest(name, registry)}")
    if cls := declared(registry[name], _class_of(name, registry[name])):
        validation.to_dataclass(cls, table, key)


def algorithms() -> dict[str, Path]:
    """The file of each registered algorithm: its name is that of the class in lower case."""
    folder = PACKAGE / "algorithms"
    tree = _parsed(folder / "__init__.py")
    registered = next(node.iter for node in ast.walk(tree) if isinstance(node, ast.comprehension))
    assert isinstance(registered, ast.Tuple)
    names = [element.id.lower() for element in registered.elts if isinstance(element, ast.Name)]
    return {name: folder / f"{name}.py" for name in names}


def models() -> dict[str, Path]:
    """The file of each registered model."""
    folder = PACKAGE / "models"
    tree = _parsed(folder / "__init__.py")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    files = {
        alias.name: folder / f"{str(node.module).rpartition('.')[2]}.py"
        for node in imports
        for alias in node.names
    }
    registered = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    return {
        str(key.value): files[value.id]
        for key, value in zip(registered.keys, registered.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name)
    }


def _class_of(name: str, path: Path) -> str:
    """The class in the file whose name, in lower case, is the registered one."""
    classes = [node.name for node in _parsed(path).body if isinstance(node, ast.ClassDef)]
    return next((cls for cls in classes if cls.lower() == name), "")


@cache
def declared(path: Path, name: str) -> type[Any] | None:
    """A dataclass with the fields of the class of that name in the file.

    None if there is no such class, or if a field's type is defined elsewhere.
    """
    found = [n for n in _parsed(path).body if isinstance(n, ast.ClassDef) and n.name == name]
    if not found:
        return None
    body: list[ast.stmt] = [n for n in found[0].body if isinstance(n, ast.AnnAssign)]
    cls = ast.ClassDef(name, bases=[], keywords=[], body=body or [ast.Pass()], decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([cls], type_ignores=[]))
    namespace: dict[str, Any] = dict(NAMESPACE)
    try:
        exec(compile(module, str(path), "exec"), namespace)  # our own source, without its methods
    except NameError:
        return None
    return dataclasses.dataclass(frozen=True)(namespace[name])


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
