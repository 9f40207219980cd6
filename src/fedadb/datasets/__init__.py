"""The datasets by name."""

from collections.abc import Callable
from pathlib import Path

from fedadb.core.data import Splits
from fedadb.datasets import cifar, digits, medmnist, own
from fedadb.datasets.source import Source

SOURCES: dict[str, Source] = {"cifar10": cifar.SOURCE, **medmnist.SOURCES}
DATASETS: tuple[str, ...] = ("digits", *SOURCES)
OWN: dict[str, Callable[[Path], Splits]] = {"npz": own.load_npz, "folder": own.load_folder}


def load(name: str) -> Splits:
    """A dataset by its name, or one's own by `npz:PATH` or `folder:PATH`."""
    if name == "digits":
        return digits.load()
    kind, _, path = name.partition(":")
    return OWN[kind](Path(path).expanduser()) if path else SOURCES[name].load(name)
