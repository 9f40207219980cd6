"""Data of users and of sites: arrays, tables, images, archives, partitions."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from fedadb.datasets import cifar, mnist
from fedadb.datasets.archive import unpack_archive
from fedadb.datasets.images import ImageFormat, common_format, read_pixels
from fedadb.datasets.own import load_npz
from fedadb.datasets.tables import load_csv
from fedadb.partition.file import File
from fedadb.partition.protocol import Labels
from fedadb.progress import no_progress
from storm.readers.reader import Reader, in_file

TABLES = [
    b"a,b,label\n1,x,0\n2,y,1\n3,x,0\n4,y,1\n5,x,0\n6,y,1\n7,x,0\n8,y,1\n9,x,0\n0,y,1\n",
    b"label,c\nyes,0.5\nno,1e3\nyes,2\nno,-3\nyes,4\nno,5\nyes,6\nno,7\nyes,8\nno,9\n",
]


@cache
def _npz() -> bytes:
    file = io.BytesIO()
    x, y = np.zeros((8, 28, 28), np.uint8), np.arange(8) % 2
    np.savez(file, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], classes=np.array(["a", "b"]))
    return file.getvalue()


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((20, 28, 28), np.uint8))
    return file.getvalue()


def _read_members(data: bytes, directory: Path) -> None:
    """Arrays whose bytes are changed inside of a zip file with valid checksums."""
    labels = io.BytesIO()
    np.save(labels, np.arange(20) % 2)
    path = directory / "data.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data)
        archive.writestr("y.npy", labels.getvalue())
    load_npz(path)


@cache
def _images() -> list[bytes]:
    made = []
    for mode, kind in (
        *(("L", "PNG"), ("RGB", "JPEG"), ("P", "GIF"), ("I;16", "TIFF"), ("RGB", "BMP")),
        *(("RGB", "WEBP"), ("L", "PPM"), ("RGBA", "PNG")),
    ):
        file = io.BytesIO()
        Image.new(mode, (9, 7)).save(file, kind)
        made.append(file.getvalue())
    return made


def _read_image(data: bytes, directory: Path) -> None:
    path = directory / "image.png"
    path.write_bytes(data)
    common_format([path], no_progress)
    read_pixels(path, ImageFormat(28, 28, "RGB"))


def _read_idx(data: bytes, directory: Path) -> None:
    path = directory / "idx.gz"
    path.write_bytes(data if data[:1] == b"\x1f" else gzip.compress(data, 1))
    mnist._read_idx(path, dimensions=1)


def _read_cifar(data: bytes, directory: Path) -> None:
    in_file("batch.bin", lambda path: cifar._read_records(path, 1))(data, directory)


def _zip(names: Sequence[str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"content " * 9)
    return file.getvalue()


def _tar(names: Sequence[str]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 8
            archive.addfile(info, io.BytesIO(b"content "))
    return file.getvalue()


def _read_archive(data: bytes, directory: Path) -> None:
    path = directory / "archive"
    path.write_bytes(data)
    unpack_archive(path, directory / "into", 1 << 20, no_progress)


def _names_in(data: bytes) -> list[str]:
    return [line.decode("latin-1").replace("\x00", "") for line in data.split(b"\n")[:20]]


def _read_zip_names(data: bytes, directory: Path) -> None:
    _read_archive(_zip([name for name in _names_in(data) if 0 < len(name) < 60_000]), directory)


def _read_tar_names(data: bytes, directory: Path) -> None:
    _read_archive(_tar(_names_in(data)), directory)


LABELS = Labels(np.array([0, 1, 0, 1]))


def _read_partition(name: str, data: bytes, directory: Path) -> None:
    path = directory / name
    path.write_bytes(data)
    File(str(path)).rows(LABELS, 3, np.random.default_rng(0))


def _read_partition_json(data: bytes, directory: Path) -> None:
    _read_partition("partition.json", data, directory)


def _read_partition_csv(data: bytes, directory: Path) -> None:
    _read_partition("partition.csv", data, directory)


READERS = {
    "npz": Reader(in_file("data.npz", load_npz), [_npz()]),
    "npz, valid zip": Reader(_read_members, [_npy()]),
    "csv": Reader(in_file("data.csv", load_csv), TABLES),
    "images": Reader(_read_image, _images()),
    "idx (MNIST)": Reader(_read_idx, [bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3])]),
    "records of CIFAR": Reader(_read_cifar, [bytes(3073)], 0.2),
    "archive": Reader(_read_archive, [_zip(["a/b.txt", "c"]), _tar(["a/b.txt", "c"])]),
    "archive, valid zip": Reader(_read_zip_names, [b"a/b.txt\nc/d\ne"]),
    "archive, valid tar": Reader(_read_tar_names, [b"a/b.txt\nc/d\ne"]),
    "partition (JSON)": Reader(_read_partition_json, [b'{"a": [0, 1], "b": [2], "c": [3]}'], 2.0),
    "partition (CSV)": Reader(_read_partition_csv, [b"row,client\n0,a\n1,b\n2,b\n3,c\n"], 2.0),
}
