"""What the server does before any process runs."""

import json
import socket
from pathlib import Path

import pytest

from fedadb.core.errors import BadInput
from fedadb.deploy import keys
from fedadb.deploy.address import read_address
from fedadb.deploy.application import write_application
from fedadb.deploy.node import application_hash
from fedadb.deploy.processes import require_free
from fedadb.deploy.server import REGISTERED, forget_removed, server
from fedadb.deploy.task import agreed
from fedadb.experiment.config import Experiment


def hash_of(e: Experiment, place: Path) -> str:
    write_application(place / "application", agreed(e))
    return application_hash(place / "application")


def test_the_application_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    here = {"dataset": "npz:test.npz", "deployment": {"wait": 5.0}, "engine": {"workers": 2}}
    there = {"dataset": "npz:/srv/test.npz", "engine": {"device": "cpu"}}
    one = hash_of(Experiment.read(here), tmp_path / "a")
    assert one == hash_of(Experiment.read(there), tmp_path / "b")
    assert one != hash_of(Experiment.read({**there, "seed": 1}), tmp_path / "c")
    assert one != hash_of(Experiment.read({**there, "local": {"lr": 0.2}}), tmp_path / "d")


@pytest.mark.parametrize("change", ["removed", "replaced", "none", "added"])
def test_who_was_removed_is_forgotten(change: str, tmp_path: Path) -> None:
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
    forget_removed(tmp_path)
    forgotten = change in ("removed", "replaced")
    assert bool(list(tmp_path.glob("superlink.db*"))) != forgotten
    assert (tmp_path / REGISTERED).exists() != forgotten


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"--listen 127.0.0.1:{port}: Address already in use"):
            require_free("127.0.0.1", port, "--listen")
    require_free("127.0.0.1", port, "--listen")


def test_a_server_needs_keys_and_sites(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match=r"ca\.crt is missing"),
        server(tmp_path / "nothing", "127.0.0.1", 1),
    ):
        pass
    keys.make_server_keys(tmp_path / "server", ["localhost"], days=1)
    with (
        pytest.raises(BadInput, match=r"has no site's public key: put the site\.pub of each"),
        server(tmp_path / "server", "127.0.0.1", 1),
    ):
        pass
    sites = tmp_path / "server" / keys.SITES
    (sites / "north.pub").write_text("not a key")
    with (
        pytest.raises(BadInput, match=r"north\.pub is not the site\.pub of a site"),
        server(tmp_path / "server", "127.0.0.1", 1),
    ):
        pass
    keys.make_site_keys(tmp_path / "site")
    for name in ("north", "south"):
        (sites / f"{name}.pub").write_bytes((tmp_path / "site" / keys.SITE_PUBLIC).read_bytes())
    with (
        pytest.raises(BadInput, match="north has the key of another site"),
        server(tmp_path / "server", "127.0.0.1", 1),
    ):
        pass


@pytest.mark.parametrize("given", ["host", "host:", "host:0", "host:99999", "https://host:1", ":1"])
def test_addresses_that_are_none(given: str) -> None:
    with pytest.raises(BadInput, match="must be HOST:PORT"):
        read_address(given, "--server")


def test_addresses() -> None:
    assert read_address("fed.example.org:8443", "--server") == ("fed.example.org", 8443)
    assert read_address("[::1]:8443", "--listen") == ("::1", 8443)
