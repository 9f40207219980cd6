"""How methods, datasets and settings are displayed: names, labels and colours.

The registry of datasets would import torch, so their displayed names are listed here; a test
compares them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from fedadb.experiment.presets import scenario
from fedadb.exports import FEDOPT, algorithm_names

METHODS = {name.lower(): name for name in (*algorithm_names(), *FEDOPT)}
DATASETS = {
    "svhn": "SVHN", "cinic10": "CINIC-10", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100",
    "organamnist": "OrganAMNIST", "pathmnist": "PathMNIST", "tissuemnist": "TissueMNIST",
    "pacs": "PACS", "digits": "digits", "mnist": "MNIST", "fashionmnist": "FashionMNIST",
    "bloodmnist": "BloodMNIST", "breastmnist": "BreastMNIST", "dermamnist": "DermaMNIST",
    "octmnist": "OCTMNIST", "organcmnist": "OrganCMNIST", "organsmnist": "OrganSMNIST",
    "pneumoniamnist": "PneumoniaMNIST", "retinamnist": "RetinaMNIST",
}  # fmt: skip
SYMBOLS = {"alpha": "α", "participation": "ρ", "clients": "K"}

# Labels mention these settings before all others.
FIRST = ("dataset", "scenario", "federation.partition.alpha")

PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#edc948", "#8cd17d",
           "#79706e", "#a0cbe8", "#d4a6c8", "#499894", "#ffbe7d", "#1f4e79", "#7f3c8d", "#3f681c",
           "#b6992d", "#d37295", "#5f9ed1", "#c49c94")  # fmt: skip
FEDADB_RED = "#d62728"

FlatSettings = dict[str, Any]


def method_names(algorithms: Iterable[str]) -> dict[str, str]:
    """The displayed name of each algorithm.

    A user's own `module:Class` is displayed as `Class`; if another algorithm is displayed under the
    same name, as `Class (module)`.
    """
    names = {a: METHODS.get(a, a.rpartition(":")[2]) for a in algorithms}
    count = Counter([*names.values(), *METHODS.values()])
    return {
        a: f"{name} ({a.rpartition(':')[0]})" if ":" in a and count[name] > 1 else name
        for a, name in names.items()
    }


def dataset_name(dataset: str) -> str:
    """The displayed name of a dataset; of a user's own, its name or the last part of its path."""
    if in_memory := re.fullmatch(r"(?:images|vectors):(.+)@[0-9a-f]+", dataset):
        return in_memory[1]
    return DATASETS.get(dataset, dataset.rpartition("/")[2])


def method_colours(methods: Sequence[str]) -> dict[str, str]:
    """One colour per method; red is FedADB's."""
    others = [method for method in methods if method != "FedADB"]
    colours = {method: PALETTE[i % len(PALETTE)] for i, method in enumerate(others)}
    return {method: colours.get(method, FEDADB_RED) for method in methods}


def short_setting(key: str, value: Any) -> str:
    """A setting as `α=0.1`, `epochs=5` or `server lr=0.1`."""
    if key == "scenario":
        return str(value)
    return f"{_short_name(key)}={f'{value:g}' if isinstance(value, float) else value}"


def _exact_setting(key: str, value: Any) -> str:
    return f"{_short_name(key)}={value!r}"


def _short_name(key: str) -> str:
    """The last part of a dotted name; of `model.name`, the table's name; of `filter.0.name` too."""
    name = re.sub(r"(\.\d+)?\.name$", "", key).rpartition(".")[2]
    who = "server " if key.startswith("server.") else ""  # clients have an optimiser too
    return who + SYMBOLS.get(name, name)


def with_scenario(settings: FlatSettings) -> FlatSettings:
    """The settings; the name of a scenario replaces its clients and participation."""
    name = scenario(settings)
    if name is None:
        return settings
    rest = {k: v for k, v in settings.items() if not k.endswith((".clients", ".participation"))}
    return {**rest, "scenario": name}


def distinct_labels(names: Sequence[str], all_settings: Sequence[FlatSettings]) -> list[str]:
    """Each name, followed by the settings that distinguish it from the others of that name."""
    labels = list(names)
    keys = dict.fromkeys([*FIRST, *(key for settings in all_settings for key in settings)])
    # What a list contains comes first: "filter=dp" tells more than "filter=[]" of the others.
    for key in sorted(keys, key=lambda key: any(s.get(key) == [] for s in all_settings)):
        values: dict[str, set[str]] = {}
        for label, settings in zip(labels, all_settings, strict=True):
            values.setdefault(label, set()).add(repr(settings.get(key)))
        given = [settings[key] for settings in all_settings if key in settings]
        # Two numbers may be equal in the digits that the short form shows.
        ambiguous = len({short_setting(key, v) for v in given}) < len({repr(v) for v in given})
        describe = _exact_setting if ambiguous else short_setting
        labels = [
            f"{label}, {describe(key, settings[key])}"
            if len(values[label]) > 1 and key in settings
            else label
            for label, settings in zip(labels, all_settings, strict=True)
        ]
    return labels


def sorted_labels(labels: Iterable[str], names: Sequence[str]) -> list[str]:
    """The distinct labels, in the order of the given names, then of their settings' numbers."""

    def key(label: str) -> tuple[int, list[tuple[bool, float, str]]]:
        name, _, settings = label.partition(", ")
        words = re.split(r"[=, ]+", settings)
        numbers = [_to_number(word) for word in words]
        return (names.index(name) if name in names else len(names)), [
            (number is None, number or 0, word) for number, word in zip(numbers, words, strict=True)
        ]

    return sorted(dict.fromkeys(labels), key=key)


def _to_number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
