"""Federated learning across clients whose data differ, without forgetting.

The names that this module exports are listed in `__init__.pyi`, with the module of each. A name is
imported when it is first used, so `import fedadb` does not import torch. SPEC 1 of Scientific
Python recommends this scheme.
"""

import ast
import logging
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

__version__ = version("fedadb")
logging.getLogger("fedadb").addHandler(logging.NullHandler())  # silent unless the program asks

_MODULES = {
    alias.name: statement.module
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_bytes()).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for alias in statement.names
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedadb' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
