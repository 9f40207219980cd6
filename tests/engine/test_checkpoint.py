import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedadb.algorithms.feddyn import FedDyn
from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.data import LocalPlan
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.vector import Weights
from fedadb.engine.checkpoint import load_checkpoint, save_checkpoint
from fedadb.engine.federate import Snapshot, initial
from fedadb.engine.local import Learner
from fedadb.storage.tensorfile import write_tensors
from tests.conftest import toy_model
from tests.engine.test_federate import Counting

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def snapshot(t: int) -> Snapshot[Weights]:
    return Snapshot(Round(t, 9, 50, 40), Weights(toy_model().weights()))


def before(algorithm: Algorithm[Any, Any, Any] | None = None, classes: int = 3) -> Snapshot[Any]:
    learner = Learner(algorithm or Counting(), toy_model(classes), LocalPlan())
    return initial(learner, Round(0, 9, 50, 40))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, snapshot(7), {3: 2, 40: 1}, "data")
    return path


def test_what_is_saved_comes_back(saved: Path) -> None:
    w = toy_model().weights()
    found, versions = load_checkpoint(saved, before(), w, "data")
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
            load_checkpoint(saved, before(), w, "data")


def test_a_truncated_file_is_noticed(saved: Path) -> None:
    intact = saved.read_bytes()
    for length in (0, 5, 100, len(intact) // 2, len(intact) - 1):
        saved.write_bytes(intact[:length])
        with pytest.raises(Fault, match="is damaged"):
            load_checkpoint(saved, before(), toy_model().weights(), "data")


def test_a_checkpoint_of_another_model_or_method_is_refused(saved: Path) -> None:
    with pytest.raises(Fault, match="does not fit this experiment"):
        load_checkpoint(saved, before(classes=5), toy_model(classes=5).weights(), "data")
    with pytest.raises(Fault, match="does not fit this experiment"):
        load_checkpoint(saved, before(FedDyn()), toy_model().weights(), "data")


def test_a_checkpoint_on_other_data_is_refused(saved: Path) -> None:
    with pytest.raises(Fault, match="belongs to other data"):
        load_checkpoint(saved, before(), toy_model().weights(), "others")


def test_saving_replaces_in_one_move(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(saved, snapshot(8), {}, "data")
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@given(
    round=st.one_of(JSON, st.lists(st.integers(), min_size=5, max_size=5)),
    memories=st.one_of(JSON, st.lists(st.lists(st.integers(), min_size=2, max_size=2))),
)
def test_forged_metadata_with_a_valid_checksum_are_refused(round: Any, memories: Any) -> None:
    """Whatever the metadata say, the answer is a checkpoint or a Fault."""
    w = toy_model().weights()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "checkpoint.safetensors"
        metadata = {"round": json.dumps(round), "memories": json.dumps(memories), "data": "data"}
        write_tensors(path, pack(Weights(w), "server"), metadata)
        with contextlib.suppress(Fault):
            found, versions = load_checkpoint(path, before(), w, "data")
            assert all(isinstance(number, int) for number in found.round[:4])
            assert all(k >= 0 and version > 0 for k, version in versions.items())


@pytest.mark.parametrize(
    "metadata", [{}, {"round": "[1,2,3,4,1.0]"}, {"round": "[" * 100_000, "memories": "[]"}]
)
def test_metadata_that_lack_something_are_refused(metadata: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_tensors(path, pack(Weights(toy_model().weights()), "server"), metadata)
    with pytest.raises(Fault, match=r"is not a checkpoint; delete it to start over"):
        load_checkpoint(path, before(), toy_model().weights(), "data")


def test_weights_of_another_type_are_refused(tmp_path: Path) -> None:
    path, w = tmp_path / "checkpoint.safetensors", toy_model().weights()
    about = {"round": "[1,9,4,40,1.0]", "memories": "[]", "data": "data"}
    whole_numbers = {name: tensor.long() for name, tensor in pack(Weights(w), "server").items()}
    write_tensors(path, whole_numbers, about)
    with pytest.raises(Fault, match="must have one floating-point type"):
        load_checkpoint(path, before(), w, "data")
