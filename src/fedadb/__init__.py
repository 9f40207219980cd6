"""Federated learning across clients whose data differ, without forgetting.

The names that this module exports are listed in `__init__.pyi`, with the module of each. A name is
imported when it is first used, so `import fedadb` does not import torch. SPEC 1 of Scientific
Python recommends this scheme.
"""

import logging
from importlib import import_module
from importlib.metadata import version
from typing import Any

from fedadb.exports import MODULES

__version__ = version("fedadb")
logging.getLogger("fedadb").addHandler(logging.NullHandler())  # silent unless the program asks

__all__ = sorted(MODULES)


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'fedadb' has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
