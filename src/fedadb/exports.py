"""The names that `import fedadb` exports, read from `__init__.pyi` without importing them."""

import ast
from pathlib import Path

MODULES = {
    alias.name: statement.module
    for statement in ast.parse(Path(__file__).with_name("__init__.pyi").read_bytes()).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for alias in statement.names
}
PAPER = ("FedAvg", "FedDyn", "FedASAM", "FedNTD", "FedGELA", "FedExP", "FedLMD", "FedDecorr",
         "FedACG", "FedSOL", "FedADB")  # fmt: skip
# Names of FedAvg with a server optimiser, and the optimiser's class in core.server_optimizers.
FEDOPT = {
    "FedAvgM": "ServerSGD",
    "FedAdagrad": "ServerAdagrad",
    "FedAdam": "ServerAdam",
    "FedYogi": "ServerYogi",
}


def algorithm_names() -> list[str]:
    """The algorithms: first those of the paper, in the order of its tables, then by name.

    An algorithm is a class in the module of `fedadb.algorithms` that has its name in lower case.
    """
    names = [n for n, module in MODULES.items() if module == f"fedadb.algorithms.{n.lower()}"]
    others = [name for name in names if name not in PAPER]
    return [*(name for name in PAPER if name in names), *sorted(others, key=str.lower)]
