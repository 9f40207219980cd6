"""The datasets by name."""

from collections.abc import Callable
from pathlib import Path

from fedadb.core.data import Splits
from fedadb.datasets import cifar, cinic, csv_files, medmnist, mnist, own, pacs, svhn, tables
from fedadb.datasets.source import Source
from fedadb.datasets.tensors import Data
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
    "csv": tables.load_csv,
}


def load(name: str | Data, progress: Progress = no_progress) -> Splits:
    """Load a dataset by its name, or the user's own data by `npz:PATH`, `folder:PATH`, `csv:PATH`.

    Data in memory are given in place of the name.
    """
    if isinstance(name, Data):
        return name.splits
    kind, _, path = name.partition(":")
    if path:
        return OWN[kind](Path(path).expanduser(), progress)
    return DATASETS[name].load(name, progress)


def present(name: str | Data) -> bool:
    """Whether `load` finds the dataset without a download."""
    if isinstance(name, Data):
        return True
    kind, _, path = name.partition(":")
    if kind == "csv":
        return csv_files.locate(str(Path(path).expanduser()))[0].exists()
    return Path(path).expanduser().exists() if path else DATASETS[name].present()
