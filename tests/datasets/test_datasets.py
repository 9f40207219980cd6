"""Loaders, on small files in the official formats that are made here."""

import hashlib
import os
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedadb import datasets
from fedadb.core.errors import BadInput, Fault
from fedadb.datasets import SOURCES
from fedadb.datasets.source import Source

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> Any:
    return RNG.integers(256, size=shape, dtype=np.uint8)


def write_medmnist(path: Path, classes: int, *channels: int, **changes: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, n in (("train", 40), ("val", 10), ("test", 20)):
        arrays[f"{part}_images"] = pixels(n, 28, 28, *channels)
        arrays[f"{part}_labels"] = (np.arange(n) % classes).astype(np.uint8)[:, None]
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def write_cifar(folder: Path, rows: int = 20) -> None:
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        labels = (np.arange(rows) % 10).astype(np.uint8)[:, None]
        (folder / f"{name}.bin").write_bytes(np.hstack([labels, pixels(rows, 3072)]).tobytes())


def write_images(folder: Path, n: int, mode: str = "RGB", size: tuple[int, int] = (32, 30)) -> None:
    folder.mkdir(parents=True)
    for i in range(n):
        Image.new(mode, size, i * 20).save(folder / f"{i}.png")


def test_digits_need_nothing() -> None:
    splits = datasets.load("digits")
    assert splits.train.x.shape == (1438, 1, 28, 28)
    assert splits.test.x.shape == (359, 1, 28, 28)
    assert splits.train.x.dtype == torch.uint8
    assert int(splits.train.x.max()) > 240
    shares = torch.bincount(splits.test.y) / torch.bincount(
        torch.cat([splits.train.y, splits.test.y])
    )
    assert (shares - 0.2).abs().max() < 0.01
    assert torch.equal(splits.test.x, datasets.load("digits").test.x)


def test_medmnist_trains_on_train_and_val(no_data: Path) -> None:
    write_medmnist(no_data / "medmnist/organamnist.npz", 11)
    splits = datasets.load("organamnist")
    assert splits.train.x.shape == (50, 1, 28, 28)
    assert splits.test.x.shape == (20, 1, 28, 28)
    assert splits.train.y.shape == (50,)
    assert len(splits.classes) == 11
    assert splits.transform.flip
    write_medmnist(no_data / "medmnist/pathmnist.npz", 9, 3)
    assert datasets.load("pathmnist").train.x.shape == (50, 3, 28, 28)


def test_cifar10_reads_the_binary_records(no_data: Path) -> None:
    folder = no_data / "cifar-10-batches-bin"
    write_cifar(folder)
    splits = datasets.load("cifar10")
    assert splits.train.x.shape == (100, 3, 32, 32)
    assert splits.test.y.tolist() == [i % 10 for i in range(20)]
    raw = (folder / "data_batch_2.bin").read_bytes()
    assert splits.train.x[20].flatten().tolist() == list(raw[1:3073])
    assert (splits.transform.pad, splits.transform.flip, splits.transform.cutout) == (4, True, 16)


def test_own_arrays_come_divided_or_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    y = np.arange(30) % 3
    np.savez(path, x_train=pixels(30, 28, 40), y_train=y, x_test=pixels(9, 28, 40), y_test=y[:9])
    splits = datasets.load(f"npz:{path}")
    assert splits.train.x.shape == (30, 1, 28, 40)
    assert splits.classes == ("0", "1", "2")
    np.savez(path, x=pixels(30, 28, 28, 3), y=y, classes=np.array(["cat", "dog", "owl"]))
    splits = datasets.load(f"npz:{path}")
    assert splits.classes == ("cat", "dog", "owl")
    assert (len(splits.train.y), len(splits.test.y)) == (24, 6)
    assert not splits.transform.flip
    np.savez(path, x=pixels(30, 28, 28), y=np.full(30, 10**9))
    with pytest.raises(BadInput, match="label 1000000000 is higher than there are rows"):
        datasets.load(f"npz:{path}")


def test_a_file_in_the_manner_of_medmnist_is_ones_own_without_validation(tmp_path: Path) -> None:
    write_medmnist(tmp_path / "organamnist.npz", 11)
    splits = datasets.load(f"npz:{tmp_path / 'organamnist.npz'}")
    assert (len(splits.train.y), len(splits.test.y)) == (40, 20)
    assert not splits.transform.flip


def test_own_images_take_one_size_and_keep_their_class_names(tmp_path: Path) -> None:
    write_images(tmp_path / "fox", 10)
    write_images(tmp_path / "bee", 10, size=(50, 60))
    write_images(tmp_path / "ape", 11, mode="L", size=(50, 60))
    splits = datasets.load(f"folder:{tmp_path}")
    assert splits.classes == ("ape", "bee", "fox")
    assert splits.train.x.shape[1:] == (3, 60, 50)
    assert (len(splits.train.y), len(splits.test.y)) == (25, 6)


def test_own_images_may_come_divided_and_grey(tmp_path: Path) -> None:
    for part, n in (("train", 4), ("test", 2)):
        for name in ("a", "b"):
            write_images(tmp_path / part / name, n, mode="L", size=(20, 20))
    splits = datasets.load(f"folder:{tmp_path}")
    assert splits.train.x.shape == (8, 1, 28, 28)
    assert splits.test.y.tolist() == [0, 0, 1, 1]


def test_what_is_missing_says_where_it_was_looked_for_and_how_to_get_it(no_data: Path) -> None:
    with pytest.raises(BadInput) as caught:
        datasets.load("organamnist")
    assert str(no_data) in str(caught.value)
    assert "`fedadb data fetch organamnist`" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_labels": None}, "no array 'train_labels'"),
        (
            {"test_labels": np.zeros((7, 1), np.uint8)},
            "test_images has 20 rows and test_labels has 7",
        ),
        ({"val_labels": np.full((10, 1), 11, np.uint8)}, "label 11 is out of range"),
        ({"train_images": np.zeros((40, 28, 28))}, "train_images is float64"),
        ({"train_images": pixels(40, 28)}, "train_images has shape"),
        ({"train_labels": np.zeros((40, 14), np.uint8)}, "one whole number an image"),
        ({"test_images": pixels(20, 32, 32)}, "one shape"),
        ({"train_images": np.array([None] * 40)}, "not an .npz of plain arrays"),
    ],
)
def test_a_wrong_npz_is_explained(no_data: Path, changes: dict[str, Any], message: str) -> None:
    write_medmnist(no_data / "medmnist/organamnist.npz", 11, **changes)
    with pytest.raises(BadInput, match=message):
        datasets.load("organamnist")


def test_a_file_that_is_no_npz_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    with pytest.raises(BadInput, match="does not exist"):
        datasets.load(f"npz:{path}")
    np.savez_compressed(path, x=pixels(20, 28, 28), y=np.arange(20) % 2)
    damaged = bytearray(path.read_bytes())
    damaged[200:400] = bytes(200)
    np.save(tmp_path / "single.npy", np.zeros(3))
    single = (tmp_path / "single.npy").read_bytes()
    for content in (b"", b"PK\x03\x04 half a zip", b"text", bytes(damaged), single):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=r"not an \.npz"):
            datasets.load(f"npz:{path}")


def test_wrong_folders_are_explained(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        datasets.load(f"folder:{tmp_path / 'none'}")
    with pytest.raises(BadInput, match="has 0 classes"):
        datasets.load(f"folder:{tmp_path}")
    write_images(tmp_path / "only", 5)
    with pytest.raises(BadInput, match="has 1 class;"):
        datasets.load(f"folder:{tmp_path}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="empty has no images"):
        datasets.load(f"folder:{tmp_path}")
    (tmp_path / "empty" / ".hidden").write_text("passed over")
    (tmp_path / ".git").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no image")
    with pytest.raises(BadInput, match=r"notes\.txt cannot be read as an image"):
        datasets.load(f"folder:{tmp_path}")


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 5)
    picture = tmp_path / "b" / "3.png"
    whole = picture.read_bytes()
    for length in (0, 20, len(whole) // 2):
        picture.write_bytes(whole[:length])
        with pytest.raises(BadInput, match=r"3\.png cannot be read as an image"):
            datasets.load(f"folder:{tmp_path}")


def test_sixteen_bit_images_keep_their_range(tmp_path: Path) -> None:
    deep = np.linspace(0, 65535, 28 * 28).astype(np.uint16).reshape(28, 28)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            Image.fromarray(deep).save(tmp_path / name / f"{i}.png")
    x = datasets.load(f"folder:{tmp_path}").train.x
    assert x.shape[1:] == (1, 28, 28)
    assert x[0, 0].tolist() == (deep >> 8).tolist()
    Image.new("F", (28, 28)).save(tmp_path / "a" / "float.tiff")
    with pytest.raises(BadInput, match="save it with 8 or 16 bits"):
        datasets.load(f"folder:{tmp_path}")


def test_images_in_deeper_folders_are_not_passed_over(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 5)
    write_images(tmp_path / "b" / "more", 5)
    with pytest.raises(BadInput, match="more is a folder"):
        datasets.load(f"folder:{tmp_path}")


def test_train_and_test_have_the_same_classes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / "train" / name, 3)
    with pytest.raises(BadInput, match="has train/ but no test/"):
        datasets.load(f"folder:{tmp_path}")
    write_images(tmp_path / "test" / "a", 3)
    with pytest.raises(BadInput, match="class 'b' is in only one of train and test"):
        datasets.load(f"folder:{tmp_path}")


def test_a_truncated_record_file_is_explained(no_data: Path) -> None:
    folder = no_data / "cifar-10-batches-bin"
    write_cifar(folder)
    whole = (folder / "test_batch.bin").read_bytes()
    (folder / "test_batch.bin").write_bytes(whole[:-1])
    with pytest.raises(BadInput, match="3073-byte records"):
        datasets.load("cifar10")
    (folder / "test_batch.bin").unlink()
    with pytest.raises(BadInput, match=r"test_batch\.bin cannot be read"):
        datasets.load("cifar10")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the loopback address that serves it."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def moved(source: Source, url: str, file: Path) -> Source:
    """The source, at another address and with that file's checksum."""
    return replace(source, url=url, md5=hashlib.md5(file.read_bytes()).hexdigest())


def test_fetching_brings_a_file_or_an_archive(no_data: Path, served: tuple[Path, str]) -> None:
    folder, address = served
    write_medmnist(folder / "organamnist.npz", 11)
    source = moved(SOURCES["organamnist"], f"{address}/organamnist.npz", folder / "organamnist.npz")
    assert source.fetch() == no_data / "medmnist/organamnist.npz"
    assert len(source.load("organamnist").test.y) == 20

    write_cifar(folder / "cifar-10-batches-bin")
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as archive:
        archive.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")
    source = moved(SOURCES["cifar10"], f"{address}/cifar.tar.gz", folder / "cifar.tar.gz")
    source.fetch()
    assert len(source.load("cifar10").train.y) == 100
    assert not list(no_data.glob(".partial*"))


def test_a_wrong_or_missing_file_leaves_nothing(no_data: Path, served: tuple[Path, str]) -> None:
    folder, address = served
    write_medmnist(folder / "organamnist.npz", 11)
    source = replace(SOURCES["organamnist"], url=f"{address}/organamnist.npz")
    with pytest.raises(Fault, match="could not be fetched"):
        source.fetch()
    with pytest.raises(Fault, match="404"):
        replace(source, url=f"{address}/nothing.npz").fetch()
    assert not [p for p in no_data.rglob("*") if p.is_file()]


REAL = Path(os.environ.get("FEDADB_DATA", "/nonexistent"))


@pytest.mark.data
@pytest.mark.skipif(not (REAL / "medmnist").is_dir(), reason="FEDADB_DATA names no real data")
@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("organamnist", 34_561 + 6_491, 17_778, 11),
        ("pneumoniamnist", 4_708 + 524, 624, 2),
        ("breastmnist", 546 + 78, 156, 2),
        ("cifar10", 50_000, 10_000, 10),
    ],
)
def test_real_data_have_the_published_sizes(name: str, train: int, test: int, classes: int) -> None:
    splits = datasets.load(name)
    assert (len(splits.train.y), len(splits.test.y)) == (train, test)
    assert sorted(set(splits.train.y.tolist())) == list(range(classes))
