"""The classes that have settings, read from their source without importing torch.

Algorithms, models and optimisers need torch, but their fields do not. The annotated assignments of
a class, executed by themselves, make a dataclass with the same types, bounds and defaults. The
comment of a field says what the setting means.
"""

import ast
import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Le, Lt

from fedadb.core.schedules import Exponential, Schedule
from fedadb.exports import FEDOPT, algorithm_names
from fedadb.roles import Added, Role, Searched

PACKAGE = Path(__file__).parent.parent
NAMESPACE = {
    "Annotated": Annotated, "Literal": Literal, "Ge": Ge, "Gt": Gt, "Le": Le, "Lt": Lt,
    "Searched": Searched, "Role": Role, "Added": Added,
    # of the local plan; its optimiser is a declaration of its own
    "Optimizer": Any, "SGD": lambda: None, "Schedule": Schedule, "Exponential": Exponential,
}  # fmt: skip


class Declaration(NamedTuple):
    """A class by its file and name."""

    path: Path
    name: str

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        text = ast.get_docstring(_class(self)) or ""
        return " ".join(text.partition("\n\n")[0].split())


SETTINGS = PACKAGE / "experiment" / "settings.py"
# The tables of an experiment, by key; "" is the experiment itself.
TABLES = {
    "": (
        Declaration(SETTINGS, "Settings"),
        Declaration(PACKAGE / "experiment" / "config.py", "Experiment"),
    ),
    "federation": (Declaration(SETTINGS, "Federation"),),
    "local": (Declaration(PACKAGE / "core" / "data.py", "LocalPlan"),),
    "server": (Declaration(SETTINGS, "Server"),),
    "engine": (Declaration(SETTINGS, "Engine"),),
    "deployment": (Declaration(SETTINGS, "Deployment"),),
}
# The settings that name a class, by key: where the registry of these classes is. A package has its
# classes in files of their own.
REGISTRIES = {
    "model": ("models", "MODELS"),
    "federation.partition": ("partition", "PARTITIONS"),
    "local.optimizer": ("core/optimizers.py", "OPTIMIZERS"),
    "local.schedule": ("core/schedules.py", "SCHEDULES"),
    "server.optimizer": ("core/server_optimizers.py", "SERVER_OPTIMIZERS"),
    "filter": ("filters", "FILTERS"),
    "attack": ("attacks", "ATTACKS"),
}
CHOSEN = ("algorithm", *REGISTRIES)  # all settings that name a class


@cache
def choices(key: str) -> dict[str, Declaration]:
    """The classes that a setting such as `algorithm` or `local.optimizer` can name."""
    if key == "algorithm":
        return _algorithms()
    module, registry = REGISTRIES[key]
    path = PACKAGE / module
    file = path / "__init__.py" if path.is_dir() else path
    files = {
        alias.name: path / f"{str(node.module).rpartition('.')[2]}.py"
        for node in _parsed(file).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    entries = _assigned(file, registry)
    return {
        str(key.value): Declaration(files[value.id] if path.is_dir() else path, value.id)
        for key, value in zip(entries.keys, entries.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name)
    }


def _algorithms() -> dict[str, Declaration]:
    """The algorithms, then FedAvg with a server optimiser, whose settings are the method's."""
    folder, optimizers = PACKAGE / "algorithms", PACKAGE / "core" / "server_optimizers.py"
    methods = {
        name.lower(): Declaration(folder / f"{name.lower()}.py", name) for name in algorithm_names()
    }
    return methods | {name.lower(): Declaration(optimizers, cls) for name, cls in FEDOPT.items()}


@cache
def dataset_names() -> list[str]:
    """The registered datasets."""
    medmnist = _keys(PACKAGE / "datasets" / "medmnist.py", "SETS")
    return [*_keys(PACKAGE / "datasets" / "__init__.py", "DATASETS"), *medmnist]


@cache
def own_data_kinds() -> list[str]:
    """The kinds of files for the user's own data: npz, folder, csv."""
    return _keys(PACKAGE / "datasets" / "__init__.py", "OWN")


@cache
def declared(declaration: Declaration) -> type[Any] | None:
    """A dataclass with the fields of the class; None if a field's type is defined elsewhere."""
    body: list[ast.stmt] = [
        statement for one in _with_bases(declaration) for statement in _fields(one)
    ]
    name = declaration.name
    cls = ast.ClassDef(name, bases=[], keywords=[], body=body or [ast.Pass()], decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([cls], type_ignores=[]))
    namespace: dict[str, Any] = dict(NAMESPACE)
    try:
        # our own source, without its methods
        exec(compile(module, str(declaration.path), "exec"), namespace)
    except NameError:
        return None
    return dataclasses.dataclass(frozen=True)(namespace[name])


@cache
def meanings(declaration: Declaration) -> dict[str, str]:
    """What each field means, by its comment; "" if it has none."""
    lines = declaration.path.read_text(encoding="utf-8").splitlines()
    return {
        statement.target.id: field_comment(lines, statement.lineno, statement.end_lineno)
        for one in _with_bases(declaration)
        for statement in _fields(one)
        if isinstance(statement.target, ast.Name)
    }


def field_comment(lines: Sequence[str], first: int, last: int | None) -> str:
    """The comment behind a statement on these lines, counted from 1, or in those right above it."""
    _, mark, behind = lines[(last or first) - 1].partition("  # ")
    if mark and not behind.startswith(("type:", "fmt:", "noqa")):
        return behind.strip()
    above: list[str] = []
    for line in reversed(lines[: first - 1]):
        if not line.strip().startswith("# "):
            break
        above.insert(0, line.strip().removeprefix("# "))
    return " ".join(above)


@cache
def setting_keys() -> list[str]:
    """The dotted names of all settings, those of classes that an experiment can name included."""
    keys = [
        f"{table}.{name}" if table else name
        for table, declarations in TABLES.items()
        for declaration in declarations
        for name in meanings(declaration)
    ]
    own = [
        f"{key}.{name}" for key in CHOSEN for one in choices(key).values() for name in meanings(one)
    ]
    return list(dict.fromkeys([*keys, "federation.scenario", *own]))


def _fields(cls: ast.ClassDef) -> list[ast.AnnAssign]:
    annotated = [statement for statement in cls.body if isinstance(statement, ast.AnnAssign)]
    return [one for one in annotated if not ast.unparse(one.annotation).startswith("ClassVar")]


def _with_bases(declaration: Declaration) -> list[ast.ClassDef]:
    """The class, after its base classes in the same file."""
    cls = _class(declaration)
    names = {base.id for base in cls.bases if isinstance(base, ast.Name)}
    body = _parsed(declaration.path).body
    return [n for n in body if isinstance(n, ast.ClassDef) and n.name in names] + [cls]


def _class(declaration: Declaration) -> ast.ClassDef:
    body = _parsed(declaration.path).body
    return next(n for n in body if isinstance(n, ast.ClassDef) and n.name == declaration.name)


def _keys(path: Path, name: str) -> list[str]:
    """The keys of a dictionary that are written out."""
    keys = _assigned(path, name).keys
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


def _assigned(path: Path, name: str) -> ast.Dict:
    """The dictionary that a module assigns to a name."""
    for statement in _parsed(path).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=ast.Dict() as value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.Dict() as value)
            ) if target == name:
                return value
    raise AssertionError(f"{path} assigns no dictionary to {name}")


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
