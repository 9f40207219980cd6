"""Default settings per dataset, after the paper."""

from collections.abc import Mapping
from typing import Any

from fedadb.experiment.toml_tables import merge, renamed

# clients and participation, by one name
SCENARIOS: dict[str, dict[str, Any]] = {
    "cross-device": {"clients": 100, "participation": 0.05},
    "cross-silo": {"clients": 20, "participation": 0.2},
    "small": {"clients": 10, "participation": 0.5},
}

SMALL: dict[str, Any] = {"scenario": "small", "partition": {"alpha": 0.5}}
# Data of one's own are mostly small; `fedadb init` chooses by their size.
OWN: dict[str, Any] = {"rounds": 100, "federation": SMALL, "local": {"batch_size": 32}}

DATASET = "digits"  # if an experiment names none
LEARNING_RATE = "local.lr"

# Tables without a name, such as {alpha = 0.5}, are completed by these. All other defaults are those
# of the fields.
NAMES: dict[str, Any] = {
    "model": {"name": "lenet"},
    "federation": {"partition": {"name": "dirichlet"}},
    "local": {"optimizer": {"name": "sgd"}, "schedule": {"name": "exponential"}},
    "server": {"optimizer": {"name": "none"}},
    "algorithm": {"name": "fedadb"},
}

PRESETS: dict[str, dict[str, Any]] = {
    "digits": {
        "rounds": 40,
        "federation": {"scenario": "cross-silo"},
        "local": {"batch_size": 32},
    },
    "organamnist": {"rounds": 300},
    # These have too few rows or classes for a hundred clients with strong skew.
    "breastmnist": {"federation": SMALL},
    "pneumoniamnist": {"federation": SMALL},
    "retinamnist": {"federation": SMALL},
    "npz": OWN,
    "folder": OWN,
    "csv": {**OWN, "model": "mlp"},
    # Data in memory: `fedadb.Data` says which of the two it is.
    "images": OWN,
    "vectors": {**OWN, "model": "mlp"},
    "cifar10": {"model": "resnet18"},
    "cifar100": {"model": "resnet18"},
    "cinic10": {"model": "resnet18"},
    "svhn": {"model": "resnet18"},
    "pathmnist": {"model": "resnet18"},
    "pacs": {
        "model": "inception",
        "rounds": 300,
        "federation": {"scenario": "cross-silo", "partition": "domains"},
    },
}


# The learning rate of each method, chosen by `fedadb tune` on validation data with that many runs
# per method. All others have the default of the field.
RATE_RUNS = 4
RATES: dict[str, dict[str, float]] = {
    "digits": {
        "fedavg": 0.01, "feddyn": 0.01, "fedasam": 0.01, "fedntd": 0.03, "fedgela": 0.003,
        "fedexp": 0.003, "fedlmd": 0.03, "feddecorr": 0.01, "fedacg": 0.01, "fedsol": 0.01,
        "fedadb": 0.03, "fedcurv": 0.01, "feddisco": 0.01, "fedlc": 0.03, "fednova": 0.01,
        "fedprox": 0.01, "fedrod": 0.03, "fedrs": 0.01, "fedvls": 0.03, "moon": 0.01,
        "scaffold": 0.003, "fedavgm": 0.01, "fedadagrad": 0.03, "fedadam": 0.1, "fedyogi": 0.1,
    },
    "organamnist": {
        "fedavg": 0.01, "feddyn": 0.01, "fedasam": 0.01, "fedntd": 0.03, "fedgela": 0.003,
        "fedexp": 0.01, "fedlmd": 0.03, "feddecorr": 0.03, "fedacg": 0.01, "fedsol": 0.03,
        "fedadb": 0.03, "fedcurv": 0.03, "feddisco": 0.01, "fedlc": 0.03, "fednova": 0.01,
        "fedprox": 0.03, "fedrod": 0.1, "fedrs": 0.1, "fedvls": 0.1, "moon": 0.01,
        "scaffold": 0.01, "fedavgm": 0.003, "fedadagrad": 0.03, "fedadam": 0.1, "fedyogi": 0.03,
    },
}  # fmt: skip


def tuned_rate(dataset: str, algorithm: str) -> float | None:
    """The learning rate that was found for the method on this dataset; None if there is none."""
    return RATES.get(dataset, {}).get(algorithm)


def complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given table, completed by the defaults of its dataset, then by the general ones."""
    dataset, _, _ = str(given.get("dataset", DATASET)).partition(":")
    below = merge(NAMES, PRESETS.get(dataset, {}))
    rate = tuned_rate(dataset, _algorithm_name(given.get("algorithm", below["algorithm"])))
    if rate is not None:
        below = merge(below, {"local": {"lr": rate}})
    return merge(below, renamed(given))


def _algorithm_name(given: Any) -> str:
    """The registered name of an algorithm that is given by name, as a table or as an object."""
    if isinstance(given, Mapping):
        given = given.get("name", NAMES["algorithm"]["name"])
    if isinstance(given, str):
        return given
    own = not type(given).__module__.startswith("fedadb.")
    return "" if own else str(getattr(given, "name", "")).lower()


def scenario(settings: Mapping[str, Any]) -> str | None:
    """The name of the flat settings' number of clients and participation, if they have one."""
    size = {k: settings.get(f"federation.{k}") for k in ("clients", "participation")}
    return next((name for name, known in SCENARIOS.items() if known == size), None)
