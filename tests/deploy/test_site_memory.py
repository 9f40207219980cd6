"""What a site remembers of a run."""

from pathlib import Path

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
    assert dict(memory) == {5: b"five", 6: b"six again"}


def test_a_runs_identity_cannot_be_a_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a hexadecimal number"):
        FileMemory(tmp_path, "../../etc")
