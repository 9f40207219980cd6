"""MedMNIST: Yang et al., "MedMNIST v2", Scientific Data 2023. One .npz a set, CC BY 4.0."""

from functools import partial
from pathlib import Path

from fedadb.core.data import Splits
from fedadb.core.transform import Transform
from fedadb.datasets import arrays
from fedadb.datasets.source import Source

ORGANS = (
    "bladder", "femur left", "femur right", "heart", "kidney left", "kidney right", "liver",
    "lung left", "lung right", "pancreas", "spleen",
)  # fmt: skip


def _numbered(classes: int) -> tuple[str, ...]:
    return tuple(str(c) for c in range(classes))


# Each set's classes, and the MD5 of its file in MedMNIST v3.
SETS: dict[str, tuple[tuple[str, ...], str]] = {
    "bloodmnist": (_numbered(8), "7053d0359d879ad8a5505303e11de1dc"),
    "breastmnist": (("malignant", "normal or benign"), "750601b1f35ba3300ea97c75c52ff8f6"),
    "dermamnist": (_numbered(7), "0744692d530f8e62ec473284d019b0c7"),
    "octmnist": (_numbered(4), "c68d92d5b585d8d81f7112f81e2d0842"),
    "organamnist": (ORGANS, "68e3f8846a6bd62f0c9bf841c0d9eacc"),
    "organcmnist": (ORGANS, "b9ceb9546e10131b32923c5bbeaea2b1"),
    "organsmnist": (ORGANS, "9ab87b696fb54e2a387ebe992d6ed5f1"),
    "pathmnist": (_numbered(9), "a8b06965200029087d5bd730944a56c1"),
    "pneumoniamnist": (("normal", "pneumonia"), "28209eda62fecd6e6a2d98b1501bb15f"),
    "retinamnist": (_numbered(5), "bd4c0672f1bba3e3a89f0e4e876791e4"),
    "tissuemnist": (_numbered(8), "ebe78ee8b05294063de985d821c1c34b"),
}


def read(names: tuple[str, ...], path: Path) -> Splits:
    """Training and validation images together train, as in the code the paper follows."""
    stored = arrays.read(path)
    train, val, test = parts = [
        arrays.images(path, stored, f"{part}_images", f"{part}_labels")
        for part in ("train", "val", "test")
    ]
    arrays.check(path, parts, len(names))
    channels = train.x.shape[1]
    transform = Transform(mean=(0.5,) * channels, std=(0.5,) * channels, flip=True)
    return Splits(arrays.concatenate([train, val]), test, names, transform)


SOURCES = {
    name: Source(
        classes=len(names),
        path=f"medmnist/{name}.npz",
        url=f"https://zenodo.org/records/10519652/files/{name}.npz",
        md5=md5,
        read=partial(read, names),
    )
    for name, (names, md5) in SETS.items()
}
