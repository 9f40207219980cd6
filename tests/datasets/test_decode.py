"""Decoding folders of images in parallel, and the cache of decoded pixels."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedadb import datasets
from fedadb.core.errors import BadInput
from fedadb.datasets import decode as module
from fedadb.storage.cache import cache_directory


class RecordedProgress:
    """Records the progress of each piece of work."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}

    @contextmanager
    def __call__(self, what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        self.done[what] = 0

        def advance(n: int) -> None:
            self.done[what] += n

        yield advance
        assert self.done[what] == total


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("ape", "bee"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i in range(100):
            noise = rng.integers(256, size=(30, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "mine" / name / f"{i:03}.png")
    return tmp_path / "mine"


def test_pixels_and_labels_are_those_of_the_files(folder: Path) -> None:
    splits = datasets.load(f"folder:{folder}")
    assert splits.train.x.shape == (160, 3, 30, 32)
    stored = {p.read_bytes(): p for p in folder.rglob("*.png")}
    as_arrays = {np.asarray(Image.open(p)).tobytes(): p.parent.name for p in stored.values()}
    for x, y in zip(*splits.test, strict=True):
        name = as_arrays[x.permute(1, 2, 0).contiguous().numpy().tobytes()]
        assert name == splits.classes[int(y)]


def test_a_second_load_decodes_nothing_and_maps_one_file(folder: Path) -> None:
    first, second = RecordedProgress(), RecordedProgress()
    once = datasets.load(f"folder:{folder}", first)
    again = datasets.load(f"folder:{folder}", second)
    assert first.done == {"inspecting images": 200, "decoding images": 200}
    assert second.done == {}
    assert torch.equal(once.train.x, again.train.x)
    assert len(list((cache_directory() / "decoded").iterdir())) == 1
    together = (
        again.train.x.untyped_storage().data_ptr() == again.test.x.untyped_storage().data_ptr()
    )
    assert together


def test_a_changed_folder_is_decoded_again_and_replaces_the_cached_array(folder: Path) -> None:
    before = datasets.load(f"folder:{folder}").train.x.clone()
    picture = folder / "ape" / "003.png"
    Image.new("RGB", (32, 30), "red").save(picture)
    os.utime(picture, (1, 1))
    after = datasets.load(f"folder:{folder}")
    assert not torch.equal(before, after.train.x)
    assert len(list((cache_directory() / "decoded").iterdir())) == 1
    picture.unlink()
    fewer = datasets.load(f"folder:{folder}")
    assert len(fewer.train.y) + len(fewer.test.y) == 199


def test_a_damaged_cached_array_is_replaced(folder: Path) -> None:
    before = datasets.load(f"folder:{folder}").train.x.clone()
    (cached,) = (cache_directory() / "decoded").iterdir()
    for content in (b"", cached.read_bytes()[:-1000], b"text"):
        cached.write_bytes(content)
        assert torch.equal(datasets.load(f"folder:{folder}").train.x, before)


def test_without_a_cache_directory_pixels_stay_in_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = datasets.load(f"folder:{folder}").train.x
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert torch.equal(datasets.load(f"folder:{folder}").train.x, expected)


def test_a_full_disk_leaves_no_partial_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = datasets.load(f"folder:{folder}").train.x.clone()
    for cached in (cache_directory() / "decoded").iterdir():
        cached.unlink()

    def full(file: object, header: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_array_header_1_0", full)
    assert torch.equal(datasets.load(f"folder:{folder}").train.x, expected)
    assert not list((cache_directory() / "decoded").iterdir())


def test_the_error_names_the_damaged_file_and_nothing_is_cached(folder: Path) -> None:
    (folder / "bee" / "050.png").write_bytes((folder / "bee" / "050.png").read_bytes()[:500])
    with pytest.raises(BadInput, match=r"bee/050\.png cannot be read as an image"):
        datasets.load(f"folder:{folder}")
    assert not list((cache_directory() / "decoded").iterdir())


def test_another_process_may_decode_the_same_folder(folder: Path) -> None:
    """Another process decodes the folder completely while this one has just begun."""
    expected = datasets.load(f"folder:{folder}").train.x.clone()
    for cached in (cache_directory() / "decoded").iterdir():
        cached.unlink()

    @contextmanager
    def other(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        if what == "decoding images":
            datasets.load(f"folder:{folder}")
        yield lambda n: None

    assert torch.equal(datasets.load(f"folder:{folder}", other).train.x, expected)
    assert len(list((cache_directory() / "decoded").iterdir())) == 1
