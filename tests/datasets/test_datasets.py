"""Published datasets: read from small files in their formats, and from real data if present."""

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from fedadb import datasets
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import assemble
from fedadb.core.schedules import Constant
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Weights
from fedadb.datasets import DATASETS, pacs
from fedadb.datasets.arrays import stratified_split
from fedadb.engine.evaluate import evaluate, mixed_order
from fedadb.engine.local import Learner
from fedadb.models.lenet import LeNet
from tests.datasets.official import (
    pixels,
    write_cifar10,
    write_cifar100,
    write_cinic,
    write_medmnist,
    write_mnist,
    write_pacs,
    write_svhn,
)


def test_digits_need_no_download() -> None:
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


def test_digits_are_scikit_learn_s_without_its_import(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    splits = datasets.load("digits")
    images = torch.from_numpy(digits.images).float()[:, None] * (255 / 16)
    expected = torch.nn.functional.interpolate(images, size=(28, 28), mode="bilinear").round()
    rows = stratified_split(torch.from_numpy(digits.target), classes=10)
    for part, which in zip((splits.train, splits.test), rows, strict=True):
        assert part.y.tolist() == digits.target[which].tolist()
        assert torch.equal(part.x.float(), expected[which])


def test_medmnist_adds_validation_images_to_training_images(no_data: Path) -> None:
    write_medmnist(no_data / "medmnist/organamnist.npz", 11)
    splits = datasets.load("organamnist")
    assert splits.train.x.shape == (50, 1, 28, 28)
    assert splits.test.x.shape == (20, 1, 28, 28)
    assert splits.train.y.shape == (50,)
    assert len(splits.classes) == 11
    assert isinstance(splits.transform, Transform)
    assert splits.transform.flip
    write_medmnist(no_data / "medmnist/pathmnist.npz", 9, 3)
    assert datasets.load("pathmnist").train.x.shape == (50, 3, 28, 28)


def test_cifar10_reads_the_binary_records(no_data: Path) -> None:
    folder = no_data / "cifar-10-batches-bin"
    write_cifar10(folder)
    splits = datasets.load("cifar10")
    assert splits.train.x.shape == (100, 3, 32, 32)
    assert splits.test.y.tolist() == [i % 10 for i in range(20)]
    raw = (folder / "data_batch_2.bin").read_bytes()
    assert splits.train.x[20].flatten().tolist() == list(raw[1:3073])
    assert isinstance(splits.transform, Transform)
    assert (splits.transform.pad, splits.transform.flip, splits.transform.cutout) == (4, True, 16)


def test_cifar100_uses_the_fine_label(no_data: Path) -> None:
    folder = no_data / "cifar-100-binary"
    write_cifar100(folder)
    splits = datasets.load("cifar100")
    assert splits.train.y.tolist() == [i % 100 for i in range(200)]
    assert splits.classes[37] == "thing_37"
    raw = (folder / "test.bin").read_bytes()
    assert splits.test.x[1].flatten().tolist() == list(raw[3074 + 2 : 2 * 3074])
    (folder / "fine_label_names.txt").write_text("apple\n")
    with pytest.raises(BadInput, match="has 1 names; it must have 100"):
        datasets.load("cifar100")
    (folder / "fine_label_names.txt").unlink()
    with pytest.raises(BadInput, match=r"fine_label_names\.txt cannot be read"):
        datasets.load("cifar100")


def test_svhn_labels_zeros_0_and_does_not_invert_colours(no_data: Path) -> None:
    write_svhn(no_data / "svhn")
    splits = datasets.load("svhn")
    assert splits.train.x.shape == (30, 3, 32, 32)
    assert splits.train.y[:11].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    stored = scipy.io.loadmat(no_data / "svhn" / "test_32x32.mat")["X"]
    assert splits.test.x[3, 1, 5, 7] == stored[5, 7, 1, 3]
    assert isinstance(splits.transform, Transform)
    assert (splits.transform.pad, splits.transform.flip, splits.transform.cutout) == (4, True, 0)
    path = no_data / "svhn" / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInput, match=r"test_32x32\.mat cannot be read as a MATLAB file"):
        datasets.load("svhn")
    scipy.io.savemat(path, {"X": stored.astype(float), "y": np.ones((10, 1))})
    with pytest.raises(BadInput, match="must contain X of 32×32×3×N bytes"):
        datasets.load("svhn")


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "mnist"), ("fashionmnist", "fashion-mnist")]
)
def test_mnist_reads_idx_files(name: str, folder: str, no_data: Path) -> None:
    write_mnist(no_data / folder)
    splits = datasets.load(name)
    assert splits.train.x.shape == (30, 1, 28, 28)
    assert splits.test.y.tolist() == list(range(10))
    images = no_data / folder / "t10k-images-idx3-ubyte.gz"
    labels = no_data / folder / "t10k-labels-idx1-ubyte.gz"
    content_before = images.read_bytes()
    for content, message in (
        (content_before[:-20], "cannot be read"),
        (labels.read_bytes(), "incomplete or not in IDX format"),
        (b"", "incomplete or not in IDX format"),
        (gzip.compress(b"\0\0\x08\x03\0\0"), "incomplete or not in IDX format"),
        ((no_data / folder / "train-images-idx3-ubyte.gz").read_bytes(), "has 30 images and 10"),
    ):
        images.write_bytes(content)
        with pytest.raises(BadInput, match=message):
            datasets.load(name)


def test_cinic_ignores_the_validation_images(no_data: Path) -> None:
    write_cinic(no_data / "CINIC-10")
    splits = datasets.load("cinic10")
    assert splits.train.x.shape == (30, 3, 32, 32)
    assert splits.test.y.tolist() == [c for c in range(10) for _ in range(2)]
    assert isinstance(splits.transform, Transform)
    assert splits.transform.pad_mode == "reflect"
    # Some of its images are grey.
    Image.new("L", (32, 32), 99).save(no_data / "CINIC-10" / "train" / "dog" / "0.png")
    assert set(datasets.load("cinic10").train.x[15].flatten().tolist()) == {99}


def test_pacs_tests_on_a_fifth_of_each_class_of_each_domain(no_data: Path) -> None:
    write_pacs(no_data / "PACS")
    splits = datasets.load("pacs")
    assert splits.train.x.shape == (4 * 7 * 4, 3, 224, 224)
    assert splits.domains is not None
    assert splits.domains.names == pacs.DOMAINS
    for part, domains, n in (
        (splits.train, splits.domains.train, 4),
        (splits.test, splits.domains.test, 1),
    ):
        assert torch.bincount(7 * domains + part.y).tolist() == [n] * 28
        for x, y, d in zip(part.x, part.y, domains, strict=True):  # the colours encode both
            assert x[0].float().mean() == pytest.approx(60 * int(d), abs=3)
            assert x[1].float().mean() == pytest.approx(30 * int(y), abs=3)
    (no_data / "PACS" / "sketch" / "house").rename(no_data / "PACS" / "house")
    with pytest.raises(BadInput, match="house is missing"):
        datasets.load("pacs")


TRANSFORMS = {
    "svhn": Transform(
        (0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614), pad=4, flip=True
    ),
    "cinic10": Transform(
        (0.47889522, 0.47227842, 0.43047404),
        (0.24205776, 0.23828046, 0.25874835),
        pad=4,
        pad_mode="reflect",
        flip=True,
    ),
    "cifar10": Transform(
        (0.49139968, 0.48215827, 0.44653124),
        (0.24703233, 0.24348505, 0.26158768),
        pad=4,
        flip=True,
        cutout=16,
    ),
    "cifar100": Transform(
        (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), pad=4, flip=True, cutout=16
    ),
    "organamnist": Transform((0.5,), (0.5,), flip=True),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_images_are_transformed_as_in_the_reference_code(name: str, no_data: Path) -> None:
    write_svhn(no_data / "svhn")
    write_cinic(no_data / "CINIC-10")
    write_cifar10(no_data / "cifar-10-batches-bin")
    write_cifar100(no_data / "cifar-100-binary")
    write_medmnist(no_data / "medmnist/organamnist.npz", 11)
    assert datasets.load(name).transform == TRANSFORMS[name]


def test_every_dataset_is_described() -> None:
    for name, source in DATASETS.items():
        assert source.rows[0] > source.rows[1] or name in ("cinic10",)
        assert min(source.classes - 1, *source.shape) >= 1
        assert bool(source.size) == bool(source.downloads) == (name != "digits")
        assert source.licence
        for download in source.downloads:
            assert (download.md5 is None) == (name == "pacs")
            assert download.md5 is None or len(download.md5) == 32
            assert all(url.startswith("http") for url in download.urls)
        if source.marker:
            assert source.unpacked > source.size
    assert len({source.path for source in DATASETS.values()}) == len(DATASETS)


def test_the_error_for_a_missing_dataset_names_the_directory_and_the_command(no_data: Path) -> None:
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
        ({"train_labels": np.zeros((40, 14), np.uint8)}, "one whole number per image"),
        ({"test_images": pixels(20, 32, 32)}, "they must have one shape"),
        (
            {"train_images": np.array([None] * 40)},
            "contains Python objects, such as a list of images of",
        ),
    ],
)
def test_a_wrong_npz_is_an_error(no_data: Path, changes: dict[str, Any], message: str) -> None:
    write_medmnist(no_data / "medmnist/organamnist.npz", 11, **changes)
    with pytest.raises(BadInput, match=message):
        datasets.load("organamnist")


def test_a_truncated_record_file_is_an_error(no_data: Path) -> None:
    folder = no_data / "cifar-10-batches-bin"
    write_cifar10(folder)
    content = (folder / "test_batch.bin").read_bytes()
    (folder / "test_batch.bin").write_bytes(content[:-1])
    with pytest.raises(BadInput, match="3073-byte records"):
        datasets.load("cifar10")
    (folder / "test_batch.bin").unlink()
    with pytest.raises(BadInput, match=r"test_batch\.bin cannot be read"):
        datasets.load("cifar10")


@pytest.mark.data
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
    assert (len(splits.train.y), len(splits.test.y)) == DATASETS[name].rows == (train, test)
    assert sorted(set(splits.train.y.tolist())) == list(range(classes))
    if name == "cifar10":
        assert torch.bincount(splits.train.y).tolist() == [5000] * 10
        assert torch.bincount(splits.test.y).tolist() == [1000] * 10


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "epochs", "more_than"),
    [
        ("organamnist", 2, 0.5),
        ("pneumoniamnist", 3, 0.7),
        ("breastmnist", 25, 0.6),
        ("cifar10", 2, 0.3),
    ],
)
def test_lenet_learns_real_data(name: str, epochs: int, more_than: float) -> None:
    splits = datasets.load(name)
    shape, classes = tuple(splits.train.x.shape[1:]), len(splits.classes)
    rng = Stream(0)
    with rng.at("body").seeded():
        body = LeNet().body(shape)
    f = assemble(body, FedAvg().heads, splits.transform.domain(shape), classes, rng)
    few = torch.randperm(len(splits.train.y), generator=rng.generator())[:12_800]
    data = Shard(splits.train, few, classes, splits.transform)
    plan = LocalPlan(epochs, batch_size=64, lr=0.03, schedule=Constant())
    round = Round(1, 1, 1, len(few))
    reply, _ = Learner(FedAvg(), f, plan).train(data, Weights(f.weights()), None, round, rng)
    test = splits.test.rows(mixed_order(len(splits.test.y))[:2000])
    scores = evaluate(f, reply.w, test, splits.transform, 128)
    assert sum(scores.class_accuracy) / classes > more_than
