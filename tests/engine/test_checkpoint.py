from pathlib import Path

import pytest
import torch

from fedadb.algorithms.feddyn import FedDyn
from fedadb.core.algorithm import Round, Weights
from fedadb.core.errors import Fault
from fedadb.engine import checkpoint
from fedadb.engine.federate import Snapshot
from tests.conftest import toy_model
from tests.engine.test_federate import Counting


def snapshot(t: int) -> Snapshot[Weights]:
    return Snapshot(Round(t, 9, 50, 40), Weights(toy_model().weights()))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(path, snapshot(7), {3: 2, 40: 1}, "data")
    return path


def test_what_is_saved_comes_back(saved: Path) -> None:
    w = toy_model().weights()
    found, versions = checkpoint.load(saved, Counting(), 0 * w, "data")
    assert found.round == Round(7, 9, 50, 40)
    assert torch.equal(found.server.w.flat, w.flat)
    assert versions == {3: 2, 40: 1}


def test_any_flipped_bit_is_noticed(saved: Path) -> None:
    intact = saved.read_bytes()
    w = toy_model().weights()
    for position in [*range(0, len(intact), 13), len(intact) - 1]:
        damaged = bytearray(intact)
        damaged[position] ^= 1 << position % 8
        saved.write_bytes(damaged)
        with pytest.raises(Fault, match=r"damaged|fit"):
            checkpoint.load(saved, Counting(), w, "data")


def test_a_truncated_file_is_noticed(saved: Path) -> None:
    intact = saved.read_bytes()
    for length in (0, 5, 100, len(intact) // 2, len(intact) - 1):
        saved.write_bytes(intact[:length])
        with pytest.raises(Fault, match="is damaged"):
            checkpoint.load(saved, Counting(), toy_model().weights(), "data")


def test_a_checkpoint_of_another_model_or_method_is_refused(saved: Path) -> None:
    with pytest.raises(Fault, match="does not fit this experiment"):
        checkpoint.load(saved, Counting(), toy_model(classes=5).weights(), "data")
    with pytest.raises(Fault, match="does not fit this experiment"):
        checkpoint.load(saved, FedDyn(), toy_model().weights(), "data")


def test_a_checkpoint_on_other_data_is_refused(saved: Path) -> None:
    with pytest.raises(Fault, match="made on other data"):
        checkpoint.load(saved, Counting(), toy_model().weights(), "others")


def test_saving_replaces_in_one_move(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(saved, snapshot(8), {}, "data")
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
