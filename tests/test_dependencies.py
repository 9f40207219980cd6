"""Every package that fedadb imports is declared in pyproject.toml."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedadb"
EXTRAS = {
    "deploy": ["federation"],
    "secagg": ["federation"],
    "cluster": ["ray"],
    "experiment": ["tune"],
    "export": ["onnx"],
    "filters": ["privacy"],
    "observers": ["tensorboard", "mlflow", "wandb"],
}


def imported(path: Path) -> Iterator[str]:
    """The top-level modules that a file imports anywhere, except Python's own and fedadb's."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        for module in modules:
            top = module.partition(".")[0]
            if top not in {"fedadb", *sys.stdlib_module_names}:
                yield top


def names(requirements: Iterable[str]) -> set[str]:
    """The normalised names of distributions, without versions."""
    return {re.split(r"[^\w.-]", r)[0].lower().replace("_", "-") for r in requirements}


def pins(file: str) -> dict[str, str]:
    """The versions that a file pins, by normalised name."""
    lines = (ROOT / file).read_text().splitlines()
    found = [re.match(r"([\w.-]+)==([^\s\\]+)", line) for line in lines]
    return {re.sub(r"[-_.]+", "-", pin[1]).lower(): pin[2] for pin in found if pin}


@cache
def distributions() -> Mapping[str, list[str]]:
    """The installed distributions by the modules they have. To list them takes a second."""
    return packages_distributions()


def test_every_pinned_package_has_hashes() -> None:
    pinned, hashed = pins("constraints.txt"), pins("constraints.hashes.txt")
    pinned.pop("torch")  # its builds differ
    assert hashed == pinned
    text = (ROOT / "constraints.hashes.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        assert line.startswith("#") or re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


@pytest.mark.parametrize("part", sorted(p.stem for p in PACKAGE.iterdir() if p.name[0] != "_"))
def test_imports_are_declared(part: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = names(project["dependencies"])
    for extra in EXTRAS.get(part, []):
        declared |= names(project["optional-dependencies"][extra])
    files = [*(PACKAGE / part).rglob("*.py"), *PACKAGE.glob(f"{part}.py")]
    for file in files:
        for module in imported(file):
            candidates = names(distributions()[module])
            assert candidates & declared, f"{file.name} imports {module}, which is not declared"
