"""MedMNIST: Yang et al., "MedMNIST v2", Scientific Data 2023. One .npz file per set,
in version 3 of the files. ChestMNIST is left out, because its images have several labels each.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedadb.core.data import Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import check_examples, concatenate, read_npz, to_examples
from fedadb.datasets.source import Download, Source
from fedadb.progress import Progress

ORGANS = (
    "bladder", "femur left", "femur right", "heart", "kidney left", "kidney right", "liver",
    "lung left", "lung right", "pancreas", "spleen",
)  # fmt: skip


class MedMNISTSet(NamedTuple):
    """One of the sets that MedMNIST consists of."""

    classes: tuple[str, ...]
    channels: int
    rows: tuple[int, int, int]  # train, val, test
    md5: str
    megabytes: float


SETS = {
    "bloodmnist": MedMNISTSet(
        ("basophil", "eosinophil", "erythroblast", "immature granulocyte", "lymphocyte",
         "monocyte", "neutrophil", "platelet"),
        3, (11_959, 1_712, 3_421), "7053d0359d879ad8a5505303e11de1dc", 35.5,
    ),
    "breastmnist": MedMNISTSet(
        ("malignant", "normal or benign"),
        1, (546, 78, 156), "750601b1f35ba3300ea97c75c52ff8f6", 0.6,
    ),
    "dermamnist": MedMNISTSet(
        ("actinic keratosis", "basal cell carcinoma", "benign keratosis", "dermatofibroma",
         "melanoma", "melanocytic nevus", "vascular lesion"),
        3, (7_007, 1_003, 2_005), "0744692d530f8e62ec473284d019b0c7", 19.7,
    ),
    "octmnist": MedMNISTSet(
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
        1, (97_477, 10_832, 1_000), "c68d92d5b585d8d81f7112f81e2d0842", 54.9,
    ),
    "organamnist": MedMNISTSet(
        ORGANS, 1, (34_561, 6_491, 17_778), "68e3f8846a6bd62f0c9bf841c0d9eacc", 38.2
    ),
    "organcmnist": MedMNISTSet(
        ORGANS, 1, (12_975, 2_392, 8_216), "b9ceb9546e10131b32923c5bbeaea2b1", 15.5
    ),
    "organsmnist": MedMNISTSet(
        ORGANS, 1, (13_932, 2_452, 8_827), "9ab87b696fb54e2a387ebe992d6ed5f1", 16.5
    ),
    "pathmnist": MedMNISTSet(
        ("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle",
         "normal colon mucosa", "cancer-associated stroma", "colorectal adenocarcinoma"),
        3, (89_996, 10_004, 7_180), "a8b06965200029087d5bd730944a56c1", 205.6,
    ),
    "pneumoniamnist": MedMNISTSet(
        ("normal", "pneumonia"), 1, (4_708, 524, 624), "28209eda62fecd6e6a2d98b1501bb15f", 4.2
    ),
    "retinamnist": MedMNISTSet(
        ("grade 0", "grade 1", "grade 2", "grade 3", "grade 4"),
        3, (1_080, 120, 400), "bd4c0672f1bba3e3a89f0e4e876791e4", 3.3,
    ),
    "tissuemnist": MedMNISTSet(
        ("collecting duct", "distal convoluted tubule", "glomerular endothelial cells",
         "interstitial endothelial cells", "leukocytes", "podocytes", "proximal tubule",
         "thick ascending limb"),
        1, (165_466, 23_640, 47_280), "ebe78ee8b05294063de985d821c1c34b", 124.9,
    ),
}  # fmt: skip


def read_medmnist(names: tuple[str, ...], path: Path, progress: Progress) -> Splits:
    """Validation images are the last training images, as in the reference code."""
    stored = read_npz(path)
    for name, array in stored.items():
        if name.endswith("_images") and array.dtype != np.uint8:
            raise BadInput(f"{path}: {name} is {array.dtype}; the published images are uint8")
    train, val, test = parts = [
        to_examples(path, stored, f"{part}_images", f"{part}_labels")
        for part in ("train", "val", "test")
    ]
    check_examples(path, parts, len(names))
    channels = train.x.shape[1]
    transform = Transform(mean=(0.5,) * channels, std=(0.5,) * channels, flip=True)
    both = concatenate([train, val])
    return Splits(both, test, names, transform, validation_rows=len(val.y))


def _source(name: str, about: MedMNISTSet) -> Source:
    train, val, test = about.rows
    url = f"https://zenodo.org/records/10519652/files/{name}.npz"
    return Source(
        classes=len(about.classes),
        shape=(about.channels, 28, 28),
        rows=(train + val, test),
        licence="CC BY-NC 4.0" if name == "dermamnist" else "CC BY 4.0",
        path=f"medmnist/{name}.npz",
        downloads=(Download(f"{name}.npz", (url,), about.md5, round(1e6 * about.megabytes)),),
        read=partial(read_medmnist, about.classes),
    )


MEDMNIST = {name: _source(name, about) for name, about in SETS.items()}
