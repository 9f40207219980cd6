from pathlib import Path

import pytest
import torch

from fedadb.core.errors import Fault
from fedadb.engine.local import ClientMemory
from fedadb.engine.memories import CACHED, Memories
from tests.conftest import toy_model
from tests.engine.test_federate import Tally


def memories(directory: Path, versions: dict[int, int]) -> Memories[Tally]:
    return Memories(directory, Tally(torch.tensor(0)), toy_model().weights(), versions)


def test_few_are_held_and_all_are_found(tmp_path: Path) -> None:
    many = memories(tmp_path / "m", {})
    for k in range(3 * CACHED):
        many[k] = Tally(torch.tensor(10 * k))
    many.commit(range(3 * CACHED))
    assert len(many._cached) == CACHED
    assert len(many) == 3 * CACHED
    assert {k: int(m.rounds) for k, m in many.items()} == {k: 10 * k for k in range(3 * CACHED)}
    assert len(many._cached) == CACHED


def test_an_old_version_lives_until_the_new_one_is_checkpointed(tmp_path: Path) -> None:
    first = memories(tmp_path / "m", {})
    first[7] = Tally(torch.tensor(1))
    first.commit([7])
    checkpointed = dict(first.versions)
    first.prune(first.versions)
    first[7] = Tally(torch.tensor(2))
    first[8] = Tally(torch.tensor(3))
    first.commit([7, 8])

    again = memories(tmp_path / "m", checkpointed)  # the process ended before the next checkpoint
    assert int(again[7].rounds) == 1
    assert 8 not in again
    again[7] = Tally(torch.tensor(5))
    again.commit([7])
    again.prune(again.versions)
    assert len(list((tmp_path / "m").iterdir())) == 1
    assert int(memories(tmp_path / "m", again.versions)[7].rounds) == 5


def test_nothing_to_remember_is_not_written(tmp_path: Path) -> None:
    stateless: Memories[tuple[()]] = Memories(tmp_path / "m", (), toy_model().weights(), {})
    stateless[3] = ()
    stateless.commit([3])
    assert 3 not in stateless
    stateless.prune({})
    assert not (tmp_path / "m").exists()


def test_a_lost_or_damaged_memory_is_named(tmp_path: Path) -> None:
    kept = memories(tmp_path / "m", {})
    kept[7] = Tally(torch.tensor(1))
    kept.commit([7])
    (path,) = (tmp_path / "m").iterdir()
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:-1] + b"x", b""):
        path.write_bytes(content)
        with pytest.raises(Fault, match=r"client-7-1\.safetensors is damaged .* client 7 cannot"):
            memories(tmp_path / "m", kept.versions)[7]
    path.unlink()
    with pytest.raises(Fault, match=r"client-7-1\.safetensors is missing; .* to start over"):
        memories(tmp_path / "m", kept.versions)[7]


def test_a_change_that_is_not_committed_is_forgotten(tmp_path: Path) -> None:
    kept = memories(tmp_path / "m", {})
    for k in (7, 8):
        kept[k] = Tally(torch.tensor(1))
    kept.commit([7, 8])
    for k in (7, 8):
        kept[k] = Tally(torch.tensor(2))
    kept.commit([8])  # the server did not use the reply of client 7
    assert [int(kept[k].rounds) for k in (7, 8)] == [1, 2]
    kept.prune(kept.versions)
    again = memories(tmp_path / "m", dict(kept.versions))
    assert [int(again[k].rounds) for k in (7, 8)] == [1, 2]
    assert len(list((tmp_path / "m").iterdir())) == 2


def test_a_memory_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It was the algorithm's part alone."""
    old = memories(tmp_path / "m", {})
    old[7] = Tally(torch.tensor(3))
    old.commit([7])
    like = ClientMemory(Tally(torch.tensor(0)), ())
    new = Memories(tmp_path / "m", like, toy_model().weights(), dict(old.versions))
    assert int(new[7].algorithm.rounds) == 3
    assert new[7].filters == ()
