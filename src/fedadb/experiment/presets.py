"""What an experiment takes as given when it does not say: by dataset, after the paper."""

from typing import Any

SCENARIOS: dict[str, dict[str, Any]] = {
    "cross-device": {"clients": 100, "participation": 0.05},
    "cross-silo": {"clients": 20, "participation": 0.2},
}

PRESETS: dict[str, dict[str, Any]] = {
    "digits": {
        "rounds": 40,
        "federation": {"scenario": "cross-silo"},
        "local": {"lr": 0.05, "batch_size": 32},
    },
    "organamnist": {"rounds": 300},
    "cifar10": {"model": "resnet18"},
    "pathmnist": {"model": "resnet18"},
}


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """The given table, with what its dataset suggests where it is silent."""
    suggested = PRESETS.get(str(given.get("dataset", "digits")), {})
    table = {**suggested, **given}
    for section in ("federation", "local"):
        ours, theirs = suggested.get(section), given.get(section)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            named = "scenario" in theirs and "scenario" in ours
            table[section] = {**({} if named else ours), **theirs}
    return table
