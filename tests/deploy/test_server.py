"""The server: its checks before any process starts, and how it follows a run."""

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys
from fedadb.deploy.ports import parse_address, require_free_port
from fedadb.deploy.processes import ProcessGroup
from fedadb.deploy.server import (
    CHECK_SECONDS,
    REGISTERED,
    RunningServer,
    forget_removed_sites,
    start_server,
)
from fedadb.deploy.server_app import FINISHED, STOPPED, status_file
from fedadb.storage.records import append_record
from tests.deploy.conftest import Clock


@pytest.mark.parametrize("change", ["removed", "replaced", "none", "added"])
def test_the_database_is_deleted_if_a_site_was_removed(change: str, tmp_path: Path) -> None:
    (tmp_path / keys.SITES).mkdir()
    for name in ("north", "south"):
        (tmp_path / keys.SITES / f"{name}.pub").write_text(f"key of {name}")
    known = {"north": "key of north", "south": "key of south"}
    (tmp_path / REGISTERED).write_text(json.dumps(known))
    for name in ("superlink.db", "superlink.db-wal"):
        (tmp_path / name).touch()
    south = tmp_path / keys.SITES / "south.pub"
    if change == "removed":
        south.unlink()
    elif change == "replaced":
        south.write_text("another key")
    elif change == "added":
        south.with_name("west.pub").write_text("key of west")
    forget_removed_sites(tmp_path)
    deleted = change in ("removed", "replaced")
    assert bool(list(tmp_path.glob("superlink.db*"))) != deleted
    assert (tmp_path / REGISTERED).exists() != deleted


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"--listen 127.0.0.1:{port}: Address already in use"):
            require_free_port("127.0.0.1", port, "--listen")
    require_free_port("127.0.0.1", port, "--listen")


def test_a_server_needs_keys_and_sites(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match=r"ca\.crt is missing"),
        start_server(tmp_path / "nothing", "127.0.0.1", 1),
    ):
        pass
    keys.make_server_keys(tmp_path / "server", ["localhost"], days=1)
    with (
        pytest.raises(BadInput, match=r"has no site's public key: put each site's site\.pub"),
        start_server(tmp_path / "server", "127.0.0.1", 1),
    ):
        pass
    sites = tmp_path / "server" / keys.SITES
    (sites / "north.pub").write_text("not a key")
    with (
        pytest.raises(BadInput, match=r"north\.pub is not a site's public key"),
        start_server(tmp_path / "server", "127.0.0.1", 1),
    ):
        pass
    keys.make_site_keys(tmp_path / "site")
    for name in ("north", "south"):
        (sites / f"{name}.pub").write_bytes((tmp_path / "site" / keys.SITE_PUBLIC).read_bytes())
    with (
        pytest.raises(BadInput, match="north has the key of another site"),
        start_server(tmp_path / "server", "127.0.0.1", 1),
    ):
        pass


@pytest.mark.parametrize("text", ["host", "host:", "host:0", "host:99999", "https://host:1", ":1"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="must be HOST:PORT"):
        parse_address(text, "--server")


def test_a_valid_address() -> None:
    assert parse_address("fed.example.org:8443", "--server") == ("fed.example.org", 8443)
    assert parse_address("[::1]:8443", "--listen") == ("::1", 8443)


@dataclass(frozen=True)
class FakeServer(RunningServer):
    """A server without processes; Flower always reports the same state of the run."""

    state: str = "running"

    def flwr(self, *words: str) -> dict[str, Any]:
        return {"runs": [{"status": self.state}]}


@pytest.fixture
def make_server(tmp_path: Path) -> Callable[[str], FakeServer]:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "superexec.log").write_text("Killed\n\n")
    return lambda state: FakeServer(tmp_path, ProcessGroup(logs, {}), {}, state)


def test_records_are_yielded_as_they_are_written(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    out, statuses = tmp_path / "run", list[str]()
    out.mkdir()
    append_record(out / "rounds.jsonl", {"round": 1})
    clock.at(20, lambda: status_file(out).write_text("waiting for sites"))
    clock.at(100, lambda: append_record(out / "rounds.jsonl", {"round": 2}))
    clock.at(200, lambda: append_record(out / "rounds.jsonl", {"round": 3}))
    clock.at(201, lambda: status_file(out).write_text(FINISHED))
    rounds = make_server("running").follow(1, out, total=3, done=1, on_status=statuses.append)
    assert [record["round"] for record in rounds] == [2, 3]
    assert statuses == ["waiting for sites"]


def test_the_reason_of_a_stopped_run_is_raised(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    clock.at(50, lambda: status_file(out).write_text(f"{STOPPED}too few replies"))
    with pytest.raises(Fault, match=r"^too few replies$"):
        list(make_server("running").follow(1, out, 3, 0, print))


def test_a_killed_server_app_is_noticed(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    with pytest.raises(Fault, match=r"the ServerApp ended \(finished:failed\): Killed; the logs"):
        list(make_server("finished:failed").follow(1, tmp_path / "run", 3, 0, print))
    assert CHECK_SECONDS <= clock.now < CHECK_SECONDS + 2
