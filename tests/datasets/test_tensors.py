"""Data in memory: what is taken, how it is stored, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedadb import datasets
from fedadb.core.errors import BadInput
from fedadb.core.transform import Bounded, Transform
from fedadb.datasets.tensors import Data

Y = np.arange(30) % 3


def rows(n: int = 30, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *(shape or (5,))))


def unit(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).random((n, *shape))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4"])
def test_vectors_become_float32_and_know_their_range(kind: Any) -> None:
    x = rows().astype(kind)
    splits = Data(x[:24], Y[:24], x[24:], Y[24:]).splits
    assert splits.train.x.dtype == torch.float32
    np.testing.assert_allclose(splits.train.x, x[:24].astype(np.float32))
    assert isinstance(splits.transform, Bounded)
    assert splits.transform.low == pytest.approx(x[:24].min(0), rel=1e-6)  # not of the test rows
    assert splits.spec.shape == (5,)
    assert splits.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    "shape", [(5,), (7, 5), (2, 6, 6), (16, 2, 2), (9, 1, 1), (1, 1, 9), (2, 2, 2, 3)]
)
def test_tensors_of_any_shape_are_taken(shape: tuple[int, ...]) -> None:
    splits = Data(torch.randn(30, *shape), torch.from_numpy(Y)).splits
    assert splits.spec.shape == shape
    assert isinstance(splits.transform, Bounded)
    domain = splits.transform.domain(shape)
    assert torch.equal(domain.project(splits.train.x), splits.train.x)
    assert len(splits.test.y) == 6  # a fifth of each class


@pytest.mark.parametrize("layout", ["NHW", "NHWC", "NCHW"])
@pytest.mark.parametrize("channels", [1, 3])
def test_bytes_are_images_whose_channels_come_first_or_last(layout: str, channels: int) -> None:
    x = np.random.default_rng(0).integers(256, size=(30, 8, 9, channels), dtype=np.uint8)
    if layout == "NHW":
        x = x[..., :1]
    expected = x.transpose(0, 3, 1, 2)
    given = {"NHW": x[..., 0], "NHWC": x, "NCHW": expected}[layout]
    splits = Data(given, Y, given, Y).splits
    assert torch.equal(splits.train.x, torch.from_numpy(np.ascontiguousarray(expected)))
    assert isinstance(splits.transform, Transform)


@pytest.mark.parametrize("shape", [(3, 8, 9), (8, 9, 3), (1, 8, 8)])
def test_float_images_are_the_same_inputs_as_bytes(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(30, *shape), dtype=np.uint8)
    floats, bytes_ = (Data(x, Y, x, Y).splits for x in (pixels / 255, pixels))
    assert floats.spec == bytes_.spec
    normalise = floats.transform.normalise
    torch.testing.assert_close(normalise(floats.train.x), normalise(bytes_.train.x))


def test_usable_data_are_not_copied_and_never_changed() -> None:
    x = torch.randn(30, 5)
    data = Data(x, torch.from_numpy(Y), x, torch.from_numpy(Y))
    assert data.splits.train.x.data_ptr() == x.data_ptr()
    image = torch.rand(30, 1, 6, 6)
    before = image.clone()
    Data(image, Y, image, Y)
    assert torch.equal(image, before)


def test_arrays_that_torch_cannot_share_are_taken_too() -> None:
    read_only = rows().astype(np.float32)
    read_only.flags.writeable = False
    backwards = rows().astype(np.float32)[::-1]
    on_tape = torch.randn(30, 5, requires_grad=True)
    for x in (read_only, backwards, on_tape, torch.randn(30, 5).bfloat16(), rows().tolist()):
        assert not Data(x, Y).splits.train.x.requires_grad


def test_the_description_follows_from_the_contents() -> None:
    x = rows()
    assert str(Data(x, Y, name="wine")) == str(Data(x, Y, name="wine"))
    assert str(Data(x, Y, name="wine")).startswith("vectors:wine@")
    assert str(Data(unit(30, 8, 8, 3), Y)).startswith("images:data@")
    changed = x.copy()
    changed[29, 4] += 1
    others = [
        Data(changed, Y),
        Data(x, Y[::-1].copy()),
        Data(x, Y, classes=["a", "b", "c"]),
        Data(x.reshape(30, 5, 1), Y),
        Data(x, Y, x, Y),
    ]
    assert len({str(data) for data in [Data(x, Y), *others]}) == 6


WRONG: dict[str, tuple[Callable[[], Data], str]] = {
    "lengths": (lambda: Data(rows(30), Y[:29]), "x_train has 30 rows and y_train has 29"),
    "test lengths": (
        lambda: Data(rows(), Y, rows(4), Y[:5]),
        "x_test has 4 rows and y_test has 5",
    ),
    "half a test set": (lambda: Data(rows(), Y, rows()), "give both or none"),
    "no rows": (lambda: Data(np.zeros((0, 5)), np.zeros(0, int)), "x_train is empty"),
    "no features": (lambda: Data(np.zeros((30, 0)), Y), r"x_train has shape \(30, 0\)"),
    "one dimension": (lambda: Data(np.zeros(30), Y), r"x_train has shape \(30,\); it must be N×"),
    "a number": (lambda: Data(np.float64(3), Y), r"x_train has shape \(\)"),
    "whole numbers": (
        lambda: Data(np.zeros((30, 5), int), Y),
        "x_train is int64; images must be uint8, from 0 to 255, or floats from 0 to 1",
    ),
    "words": (lambda: Data(np.full((30, 5), "a"), Y), "x_train is <U1; images must be"),
    "objects": (lambda: Data(np.full((30, 5), None), Y), "x_train is object; images must be"),
    "ragged": (lambda: Data([[1.0], [1.0, 2.0]], [0, 1]), "inhomogeneous"),
    "bytes that are no images": (
        lambda: Data(np.zeros((30, 5), np.uint8), Y),
        r"x_train has shape \(30, 5\); images must be N×height×width",
    ),
    "two channels": (lambda: Data(np.zeros((30, 8, 8, 2), np.uint8), Y), "with 1 or 3 channels"),
    "float images from 0 to 255": (
        lambda: Data(255 * unit(30, 3, 8, 8), Y),
        r"x_train has values from .* to 25.*; images of floats must be from 0 to 1",
    ),
    "float images below 0": (
        lambda: Data(unit(30, 8, 8, 1) - 0.5, Y),
        "images of floats must be from 0 to 1",
    ),
    "two shapes": (
        lambda: Data(rows(), Y, rows(30, 6), Y),
        r"training rows have shape \(5,\) and test rows \(6,\); they must have one shape",
    ),
    "float labels": (
        lambda: Data(rows(), Y.astype(float)),
        "y_train is float64 of shape .*; labels must be one whole number",
    ),
    "two labels": (lambda: Data(rows(), np.stack([Y, Y], 1)), "labels must be one whole number"),
    "negative label": (
        lambda: Data(rows(), Y - 1, classes=["a", "b", "c"]),
        "label -1 is out of range; 3 classes have the labels 0 to 2",
    ),
    "label too high": (
        lambda: Data(rows(), Y, classes=["a", "b"]),
        "label 2 is out of range; 2 classes have the labels 0 to 1",
    ),
    "a gap": (lambda: Data(rows(), 2 * Y), "no row has label 1; number the classes from 0"),
    "one class": (lambda: Data(rows(), 0 * Y), "has 1 class; it needs at least 2"),
    "two equal names": (
        lambda: Data(rows(), Y, classes=["a", "b", "a"]),
        "two classes with the name 'a'",
    ),
    "a text as names": (
        lambda: Data(rows(), Y, classes="abc"),
        "classes = 'abc': must be a list of names",
    ),
    "too few": (lambda: Data(rows(4), [0, 1, 0, 1]), "too few rows per class to set some aside"),
    "name": (lambda: Data(rows(), Y, name="../x"), "name = '../x': use letters, digits"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data_are_refused_in_one_sentence(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("shape", [(5,), (1, 8, 8)])
def test_what_is_not_finite_is_named_by_its_row(value: float, shape: tuple[int, ...]) -> None:
    x = unit(30, *shape)
    x[17].flat[3] = value
    with pytest.raises(BadInput, match="x_train has a value in row 17 that is not a finite number"):
        Data(x, Y)


def test_arrays_in_a_file_are_taken_by_the_same_rules(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    x = rows()
    np.savez(path, x=x, y=Y, classes=np.array(["a", "b", "c"]))
    stored, given = datasets.load(f"npz:{path}"), Data(x, Y, classes=["a", "b", "c"]).splits
    for a, b in zip((*stored.train, *stored.test), (*given.train, *given.test), strict=True):
        assert torch.equal(a, b)
    assert stored.spec == given.spec
    x[3, 0] = np.nan
    np.savez(path, x=x, y=Y)
    with pytest.raises(BadInput, match=r"mine\.npz: x has a value in row 3 that is not a finite"):
        datasets.load(f"npz:{path}")
    np.savez(path, x=2 * unit(30, 8, 8, 3), y=Y)
    with pytest.raises(BadInput, match=r"mine\.npz: x has values from .*must be from 0 to 1"):
        datasets.load(f"npz:{path}")


def test_a_sparse_tensor_is_refused() -> None:
    with pytest.raises(BadInput, match=r"a sparse tensor; use to_dense\(\)"):
        Data(torch.eye(10).to_sparse(), torch.arange(10) % 2)
