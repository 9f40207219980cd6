"""CINIC-10: Darlow et al., "CINIC-10 Is Not ImageNet or CIFAR-10", 2018. Folders of PNG files;
`valid/` is not used.
"""

from pathlib import Path

from fedadb.core.data import Splits
from fedadb.core.transform import Transform
from fedadb.datasets.cifar import CIFAR10_NAMES
from fedadb.datasets.folders import decode_parts, image_files
from fedadb.datasets.images import ImageFormat
from fedadb.datasets.source import Download, Source
from fedadb.progress import Progress


def read_cinic10(folder: Path, progress: Progress) -> Splits:
    names = CIFAR10_NAMES
    parts = [image_files(folder / part, names) for part in ("train", "test")]
    train, test = decode_parts(folder, parts, ImageFormat(32, 32, "RGB"), progress)
    mean, std = (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)
    return Splits(train, test, names, Transform(mean, std, pad=4, pad_mode="reflect", flip=True))


CINIC10 = Source(
    classes=10,
    shape=(3, 32, 32),
    rows=(90_000, 90_000),
    licence="CC BY, ImageNet",
    path="CINIC-10",
    downloads=(
        Download(
            "CINIC-10.tar.gz",
            (
                "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
                "https://datashare.is.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            ),
            md5="6ee4d0c996905fe93221de577967a372",
            size=687_544_992,
        ),
    ),
    read=read_cinic10,
    marker="train",
    unpacked=2_000_000_000,
)
