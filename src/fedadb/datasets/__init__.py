"""The datasets by name."""

from collections.abc import Callable
from pathlib import Path

from fedadb.core.data import Splits
from fedadb.datasets import cifar, cinic, medmnist, mnist, own, pacs, svhn
from fedadb.datasets.source import Source
from fedadb.progress import Progress, no_progress

DATASETS: dict[str, Source] = {
    "digits": mnist.DIGITS,
    "cifar10": cifar.CIFAR10,
    "cifar100": cifar.CIFAR100,
    "cinic10": cinic.CINIC10,
    "svhn": svhn.SVHN,
    "pacs": pacs.PACS,
    "mnist": mnist.MNIST,
    "fashionmnist": mnist.FASHION_MNIST,
    **medmnist.MEDMNIST,
}
OWN: dict[str, Callable[[Path, Progress], Splits]] = {
    "npz": own.load_npz,
    "folder": own.load_folder,
}


def load(name: str, progress: Progress = no_progress) -> Splits:
    """Load a dataset by its name, or the user's own data by `npz:PATH` or `folder:PATH`."""
    kind, _, path = name.partition(":")
    if path:
        return OWN[kind](Path(path).expanduser(), progress)
    return DATASETS[name].load(name, progress)


def present(name: str) -> bool:
    """Whether `load` finds the dataset without a download."""
    _, _, path = name.partition(":")
    return Path(path).expanduser().exists() if path else DATASETS[name].present()
