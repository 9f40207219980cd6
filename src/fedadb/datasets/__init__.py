"""The datasets by name."""

from collections.abc import Callable
from pathlib import Path

from fedadb.core.data import Splits
from fedadb.progress import Progress, no_progress
from fedadb.datasets import cifar, cinic, digits, medmnist, mnist, own, pacs, svhn
from fedadb.datasets.source import Source

SOURCES: dict[str, Source] = {
    "cifar10": cifar.CIFAR10,
    "cifar100": cifar.CIFAR100,
    "cinic10": cinic.SOURCE,
    "svhn": svhn.SOURCE,
    "pacs": pacs.SOURCE,
    "mnist": mnist.MNIST,
    "fashionmnist": mnist.FASHION,
    **medmnist.SOURCES,
}
DATASETS: tuple[str, ...] = ("digits", *SOURCES)
OWN: dict[str, Callable[[Path, Progress], Splits]] = {
    "npz": own.load_npz,
    "folder": own.load_folder,
}


def load(name: str, progress: Progress = no_progress) -> Splits:
    """A dataset by its name, or one's own by `npz:PATH` or `folder:PATH`."""
    if name == "digits":
        return digits.load()
    kind, _, path = name.partition(":")
    return (
        OWN[kind](Path(path).expanduser(), progress) if path else SOURCES[name].load(name, progress)
    )


def present(name: str) -> bool:
    """Whether it can be loaded without being fetched first."""
    kind, _, path = name.partition(":")
    if path:
        return Path(path).expanduser().exists()
    return name == "digits" or SOURCES[kind].here()
