"""The user's own data, as a simulation and as a site of a real federation read them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedadb import datasets
from fedadb.core.data import DataSpec, Examples
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.own import load_own
from tests.datasets.official import pixels, write_images, write_medmnist

# In a simulation: the data determine the classes.


def test_arrays_may_be_divided_or_not(tmp_path: Path) -> None:
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
    assert isinstance(splits.transform, Transform)
    assert not splits.transform.flip
    np.savez(path, x=pixels(30, 28, 28), y=np.full(30, 10**9))
    with pytest.raises(BadInput, match="label 1000000000 is higher than the number of rows"):
        datasets.load(f"npz:{path}")
    np.savez(path, x=pixels(30, 28, 28), y=y + 1)
    with pytest.raises(BadInput, match="no row has label 0; number the classes from 0"):
        datasets.load(f"npz:{path}")
    np.savez(path, x=pixels(30, 28, 28), y=y, classes=np.array(["cat", "dog", "cat"]))
    with pytest.raises(BadInput, match="two classes with the name 'cat'"):
        datasets.load(f"npz:{path}")


def test_arrays_may_have_the_names_of_medmnist(tmp_path: Path) -> None:
    write_medmnist(tmp_path / "organamnist.npz", 11)
    splits = datasets.load(f"npz:{tmp_path / 'organamnist.npz'}")
    assert (len(splits.train.y), len(splits.test.y)) == (40, 20)
    assert isinstance(splits.transform, Transform)
    assert not splits.transform.flip


def test_image_files_are_resized_to_the_most_common_size(tmp_path: Path) -> None:
    write_images(tmp_path / "fox", 10)
    write_images(tmp_path / "bee", 10, size=(50, 60))
    write_images(tmp_path / "ape", 11, mode="L", size=(50, 60))
    splits = datasets.load(f"folder:{tmp_path}")
    assert splits.classes == ("ape", "bee", "fox")
    assert splits.train.x.shape[1:] == (3, 60, 50)
    assert (len(splits.train.y), len(splits.test.y)) == (25, 6)


def test_folders_may_be_divided_and_grey(tmp_path: Path) -> None:
    for part, n in (("train", 4), ("test", 2)):
        for name in ("a", "b"):
            write_images(tmp_path / part / name, n, mode="L", size=(20, 20))
    splits = datasets.load(f"folder:{tmp_path}")
    assert splits.train.x.shape == (8, 1, 28, 28)
    assert splits.test.y.tolist() == [0, 0, 1, 1]


def test_a_file_that_is_not_npz_is_an_error(tmp_path: Path) -> None:
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


def test_wrong_folders_are_errors(tmp_path: Path) -> None:
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
    Image.new("L", (28, 28)).save(tmp_path / "loose.png")
    with pytest.raises(BadInput, match=r"loose\.png is not in the folder of a class"):
        datasets.load(f"folder:{tmp_path}")
    (tmp_path / "loose.png").unlink()
    (tmp_path / "labels.csv").write_text("ignored")
    (tmp_path / "empty" / ".hidden").write_text("ignored")
    (tmp_path / ".git").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("not an image")
    with pytest.raises(BadInput, match=r"notes\.txt is damaged or not an image"):
        datasets.load(f"folder:{tmp_path}")


def test_the_error_names_a_damaged_image(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 5)
    picture = tmp_path / "b" / "3.png"
    content = picture.read_bytes()
    for length in (0, 20, len(content) // 2):
        picture.write_bytes(content[:length])
        with pytest.raises(BadInput, match=r"3\.png (is damaged or not an image|cannot be read)"):
            datasets.load(f"folder:{tmp_path}")


def test_16_bit_images_keep_their_range(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 28 * 28).astype(np.uint16).reshape(28, 28)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            Image.fromarray(values).save(tmp_path / name / f"{i}.png")
    x = datasets.load(f"folder:{tmp_path}").train.x
    assert x.shape[1:] == (1, 28, 28)
    assert x[0, 0].tolist() == (values >> 8).tolist()
    for path in tmp_path.rglob("*.png"):  # 12 bits in 16, as from a scanner
        Image.fromarray(values >> 4).save(path)
    assert datasets.load(f"folder:{tmp_path}").train.x[0, 0].tolist() == (values >> 8).tolist()
    Image.new("F", (28, 28)).save(tmp_path / "a" / "float.tiff")
    with pytest.raises(BadInput, match="save it with 8 or 16 bits"):
        datasets.load(f"folder:{tmp_path}")


def test_images_in_deeper_folders_are_not_ignored(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 5)
    write_images(tmp_path / "b" / "more", 5)
    with pytest.raises(BadInput, match="more is a folder"):
        datasets.load(f"folder:{tmp_path}")


def test_a_pipe_among_the_images_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 5)
    os.mkfifo(tmp_path / "b" / "pipe.png")
    with pytest.raises(BadInput, match=r"pipe\.png is not a regular file"):
        datasets.load(f"folder:{tmp_path}")


def test_train_and_test_have_the_same_classes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / "train" / name, 3)
    with pytest.raises(BadInput, match="has train/ but no test/"):
        datasets.load(f"folder:{tmp_path}")
    write_images(tmp_path / "test" / "a", 3)
    with pytest.raises(BadInput, match="class 'b' is in only one of train and test"):
        datasets.load(f"folder:{tmp_path}")


# At a site: the federation determines the classes.

SPEC = DataSpec(("cat", "dog", "owl"), (1, 4, 4), Transform(mean=(0.5,), std=(0.5,)))


def npz(path: Path, labels: list[int], size: int = 4, **more: NDArray[Any]) -> str:
    arrays: Any = {"x": np.zeros((len(labels), size, size), dtype=np.uint8), "y": np.array(labels)}
    np.savez(path, **(arrays | more))
    return f"npz:{path}"


def folder(path: Path, classes: list[str], n: int = 5, size: int = 4) -> str:
    for c, name in enumerate(classes):
        (path / name).mkdir(parents=True)
        for i in range(n):
            image = np.full((size, size), 10 * c + i, dtype=np.uint8)
            Image.fromarray(image).save(path / name / f"{i}.png")
    return f"folder:{path}"


def test_a_site_matches_classes_by_name_and_may_lack_some(tmp_path: Path) -> None:
    data = npz(tmp_path / "a.npz", [0] * 5 + [1] * 5, classes=np.array(["owl", "cat"]))
    train, test = load_own(data, SPEC)
    assert sorted(train.y.tolist()) == [0] * 4 + [2] * 4
    assert sorted(test.y.tolist()) == [0, 2]
    train, test = load_own(folder(tmp_path / "images", ["dog", "owl"], size=9), SPEC)
    assert train.x.shape[1:] == (1, 4, 4)  # image files are resized
    assert sorted(train.y.tolist()) == [1] * 4 + [2] * 4
    dogs = train.x[train.y == 1]
    assert int(dogs.max()) < 10  # images and labels belong together


def test_labels_without_names_are_the_federations(tmp_path: Path) -> None:
    train, _ = load_own(npz(tmp_path / "a.npz", [2] * 10), SPEC)
    assert set(train.y.tolist()) == {2}


def test_train_and_test_of_a_site_may_lack_different_classes(tmp_path: Path) -> None:
    folder(tmp_path / "mine/train", ["cat", "owl"])
    data = folder(tmp_path / "mine/test", ["dog"]).removesuffix("/test")
    train, test = load_own(data, SPEC)
    assert (train.y.tolist(), test.y.tolist()) == ([0] * 5 + [2] * 5, [1] * 5)


def test_a_small_site_may_have_nothing_to_test_on(tmp_path: Path) -> None:
    for data in (npz(tmp_path / "a.npz", [0, 0, 1]), folder(tmp_path / "f", ["cat", "dog"], n=2)):
        train, test = load_own(data, SPEC)
        assert (len(train.y) >= 3, len(test.y)) == (True, 0)
        with pytest.raises(BadInput, match="too few images per class"):
            datasets.load(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: npz(p / "a.npz", [0, 3]), "label 3 is out of range"),
        (
            lambda p: npz(p / "a.npz", [0, 1], classes=np.array(["cat", "bat"])),
            "has a class 'bat'; the federation's are cat, dog, owl",
        ),
        (lambda p: folder(p / "f", ["cat", "bat"]), "has a class 'bat'; the federation's are cat"),
        (
            lambda p: npz(p / "a.npz", [0] * 4, size=5),
            r"has images of shape \(1, 5, 5\); the federation's are \(1, 4, 4\)",
        ),
        (lambda p: "csv:x", "deployment.columns, which `fedadb deploy combine` writes"),
        (lambda p: "npz:", "must be npz:PATH, folder:PATH or csv:PATH"),
        (lambda p: f"folder:{p / 'none'}", "none does not exist"),
        (lambda p: f"folder:{p}", "has 0 classes; it needs at least 1"),
    ],
)
def test_data_that_do_not_fit_the_federation(
    make: Callable[[Path], str], message: str, tmp_path: Path
) -> None:
    data = make(tmp_path)
    with pytest.raises(BadInput, match=message):
        load_own(data, SPEC)


# By the same rules.


def simulated(data: str, spec: DataSpec) -> tuple[Examples, Examples]:
    splits = datasets.load(data)
    assert splits.classes == spec.classes
    return splits.train, splits.test


def two_shapes(path: Path) -> str:
    x_train, x_test = (np.zeros((6, size, size), np.uint8) for size in (4, 5))
    y = np.arange(6) % 2
    np.savez(path / "a.npz", x_train=x_train, y_train=y, x_test=x_test, y_test=y)
    return f"npz:{path / 'a.npz'}"


def loose_image(path: Path) -> str:
    data = folder(path / "f", ["cat", "dog"])
    Image.new("L", (4, 4)).save(path / "f/loose.png")
    return data


def loose_test_image(path: Path) -> str:
    for part in ("train", "test"):
        folder(path / "f" / part, ["cat", "dog"])
    Image.new("L", (4, 4)).save(path / "f/test/loose.png")
    return f"folder:{path / 'f'}"


def nested_folder(path: Path) -> str:
    data = folder(path / "f", ["cat", "dog"])
    (path / "f/dog/more").mkdir()
    return data


def empty_class(path: Path) -> str:
    data = folder(path / "f", ["cat", "dog"])
    (path / "f/owl").mkdir()
    return data


def without_test(path: Path) -> str:
    return folder(path / "f/train", ["cat", "dog"]).removesuffix("/train")


def damaged_image(path: Path) -> str:
    data = folder(path / "f", ["cat", "dog"])
    (path / "f/dog/3.png").write_bytes(b"not an image")
    return data


SHARED_ERRORS: dict[str, tuple[Callable[[Path], str], str]] = {
    "missing file": (lambda p: f"npz:{p / 'none.npz'}", "does not exist"),
    "missing folder": (lambda p: f"folder:{p / 'none'}", "does not exist"),
    "a folder as file": (lambda p: f"npz:{p}", "is not a file"),
    "two equal names": (
        lambda p: npz(p / "a.npz", [0, 1] * 5, classes=np.array(["cat", "cat"])),
        "two classes with the name 'cat'",
    ),
    "unprintable name": (
        lambda p: npz(p / "a.npz", [0, 1] * 5, classes=np.array(["cat", "\x1b[2J"])),
        "use printable characters only",
    ),
    "unprintable folder": (
        lambda p: folder(p / "f", ["cat", "dog\n"]),
        "use printable characters only",
    ),
    "whole numbers as images": (
        lambda p: npz(p / "a.npz", [0, 1], x=np.zeros((2, 4, 4), np.int32)),
        "x is int32; images must be uint8",
    ),
    "no images": (
        lambda p: npz(p / "a.npz", [], y=np.zeros(0, int)),
        "x is empty",
    ),
    "negative label": (lambda p: npz(p / "a.npz", [0, 1, -1]), "label -1 is out of range"),
    "two channels": (
        lambda p: npz(p / "a.npz", [0, 1], x=np.zeros((2, 4, 4, 2), np.uint8)),
        "with 1 or 3 channels",
    ),
    "two shapes": (two_shapes, "they must have one shape"),
    "loose image": (loose_image, "loose.png is not in the folder of a class"),
    "loose test image": (loose_test_image, "loose.png is not in the folder of a class"),
    "nested folder": (nested_folder, "more is a folder"),
    "empty class": (empty_class, "owl has no images"),
    "no test folder": (without_test, "has train/ but no test/"),
    "damaged image": (damaged_image, "3.png is damaged or not an image"),
}


@pytest.mark.parametrize("load", [simulated, load_own])
@pytest.mark.parametrize("name", SHARED_ERRORS)
def test_simulations_and_sites_refuse_the_same(
    name: str, load: Callable[[str, DataSpec], object], tmp_path: Path
) -> None:
    make, message = SHARED_ERRORS[name]
    data = make(tmp_path)
    with pytest.raises(BadInput, match=message):
        load(data, SPEC)


def same_data(path: Path) -> dict[str, str]:
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(60, 30, 32), dtype=np.uint8)
    y = np.repeat(np.arange(3), 20)
    names = np.array(["cat", "dog", "owl"])
    np.savez(path / "undivided.npz", x=x, y=y, classes=names)
    divided: Any = {"x_train": x[::2], "y_train": y[::2], "x_test": x[1::2], "y_test": y[1::2]}
    np.savez(path / "divided.npz", classes=names, **divided)
    write_medmnist(path / "medmnist.npz", 3)
    for i, image in enumerate(x):
        file = path / "undivided" / names[y[i]] / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
        file = path / "divided" / ("train", "test")[i % 2] / names[y[i]] / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint16) << 4).save(file)  # 12 bits in 16
    (path / "undivided" / ".hidden").mkdir()
    (path / "undivided" / "cat" / ".hidden.png").write_text("ignored")
    (path / "undivided" / "notes.txt").write_text("ignored")
    arrays = {name: f"npz:{path / name}.npz" for name in ("undivided", "divided", "medmnist")}
    return arrays | {f"{name} folder": f"folder:{path / name}" for name in ("undivided", "divided")}


@pytest.mark.parametrize(
    "name", ["undivided", "divided", "medmnist", "undivided folder", "divided folder"]
)
def test_simulations_and_sites_read_the_same(name: str, tmp_path: Path) -> None:
    data = same_data(tmp_path)[name]
    splits = datasets.load(data)
    train, test = load_own(data, splits.spec)
    for at_site, simulated in ((train, splits.train), (test, splits.test)):
        assert at_site.y.tolist() == simulated.y.tolist()
        assert at_site.x.tolist() == simulated.x.tolist()
