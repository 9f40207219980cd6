"""What a site remembers of a run."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import RecordDict

from fedadb.core.errors import BadInput
from fedadb.deploy.site_memory import FileMemory, NodeStateMemory, SiteMemory, store_memory


@pytest.fixture(params=["files", "node state"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> SiteMemory:
    if request.param == "files":
        return FileMemory(tmp_path, "0" * 32)
    return NodeStateMemory(RecordDict())


def test_the_memory_after_the_last_used_round_is_kept(memory: SiteMemory) -> None:
    assert memory.get(0) is None
    store_memory(memory, 0, 1, b"one")
    store_memory(memory, 1, 4, b"four")  # the server drops this reply
    store_memory(memory, 1, 5, b"five")
    assert dict(memory) == {1: b"one", 5: b"five"}
    store_memory(memory, 5, 6, b"six")
    store_memory(memory, 5, 6, b"six again")
    assert dict(memory) == {1: b"one", 5: b"five", 6: b"six again"}


def test_a_server_can_return_to_earlier_rounds(memory: SiteMemory) -> None:
    for t in range(1, 7):
        store_memory(memory, t - 1, t, b"%d" % t)
    assert sorted(memory) == [3, 4, 5, 6]  # one of them if the server does not use the last reply
    store_memory(memory, 4, 5, b"five again")  # it returns to round 4
    assert dict(memory) == {3: b"3", 4: b"4", 5: b"five again"}


def test_a_runs_identity_cannot_be_a_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a hexadecimal number"):
        FileMemory(tmp_path, "../../etc")


@pytest.mark.parametrize("t", ["../../etc/passwd", "1", 1.0, True, -1, 10**400, None])
def test_the_number_of_a_round_cannot_be_a_path(tmp_path: Path, t: Any) -> None:
    with pytest.raises(BadInput, match="is not a whole number in range"):
        FileMemory(tmp_path, "0" * 32).get(t)
