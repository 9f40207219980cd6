"""The user's cache is created so that nobody else can write to it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedadb.storage.cache import cache_directory, make_directory


@pytest.fixture
def lax_umask() -> Iterator[None]:
    """New files and directories are open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("lax_umask")
def test_the_cache_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_directory(cache_directory() / "decoded")
    assert mode(cache_directory()) == 0o700
    make_directory(tmp_path / "data" / "mnist")
    assert mode(tmp_path / "data") == 0o777  # as the user's umask says
