"""What the doctor finds at a server and at a site."""

import email.utils
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedadb.core.errors import Fault
from fedadb.deploy import doctor, keys, node_requests, way_to_server
from fedadb.deploy.ports import free_port
from fedadb.experiment.config import Experiment
from tests.command_line import invoke
from tests.deploy.asked_site import write_data
from tests.deploy.federation import wait_for
from tests.deploy.test_proxy import Scene, make_all_keys, open_scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with open_scene(make_all_keys(tmp_path, days=365)) as opened:
        shutil.copy(tmp_path / "server" / keys.CA, tmp_path / "good" / keys.CA)
        yield opened


def found(checks: list[doctor.Check]) -> dict[str, tuple[bool, str]]:
    return {what: (ok, sentence) for what, sentence, ok in doctor.findings(checks)}


def at_server(directory: Path, listen: str = "") -> dict[str, tuple[bool, str]]:
    listen = listen or f"127.0.0.1:{free_port()}"
    return found(doctor.server_checks(directory, Experiment(), listen))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    make_all_keys(tmp_path, days=365)
    return tmp_path / "server"


def test_a_server_in_order(server: Path) -> None:
    results = at_server(server)
    assert all(ok for ok, _ in results.values()), results
    assert list(results) == [
        "versions", "keys", "certificate", "authority", "clock", "port", "disk", "sites", "data",
    ]  # fmt: skip
    assert "the keys of 2 sites: bad, good" in results["keys"][1]
    assert "10 classes" in results["data"][1]


def remove_sites(server: Path) -> None:
    for site in (server / keys.SITES).iterdir():
        site.unlink()


def turn_back_clock(server: Path) -> None:
    os.utime(server / keys.CA, (4e9, 4e9))  # as if the keys had been made in 2096


@pytest.mark.parametrize(
    ("change", "what", "way_out"),
    [
        (remove_sites, "keys", "put each site's site.pub there"),
        (lambda d: (d / keys.SECRET).unlink(), "keys", "`fedadb deploy keys` makes it"),
        (lambda d: (d / keys.SERVER_KEY).chmod(0o644), "keys", "chmod 600"),
        (lambda d: keys.renew_server_certificate(d, [], 9), "certificate", "--renew` makes a new"),
        (turn_back_clock, "clock", "set it"),
    ],
)
def test_what_is_wrong_at_a_server_has_a_way_out(
    change: Callable[[Path], Any], what: str, way_out: str, server: Path
) -> None:
    change(server)
    results = at_server(server)
    assert [name for name, (ok, _) in results.items() if not ok] == [what]
    assert way_out in results[what][1]


def test_a_port_of_a_server_that_runs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SECONDS", 0.2)
    with scene.proxy():
        address = f"127.0.0.1:{scene.good.port}"
        assert at_server(scene.directory, address)["port"] == (
            True,
            f"the server runs, and listens at {address}",
        )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ok, sentence = at_server(scene.directory, address)["port"]
        assert (ok, "stop it or choose another --listen" in sentence) == (False, True)
    elsewhere = "192.0.2.1:8443"  # no machine has this address
    assert not at_server(scene.directory, elsewhere)["port"][0]


def test_more_sites_than_the_experiment_has(server: Path) -> None:
    e = Experiment.read({"federation": {"clients": 1, "participation": 1.0}})
    ok, sentence = found(doctor.server_checks(server, e, "127.0.0.1:1"))["sites"]
    assert (ok, "the keys of 2 sites, but federation.clients = 1" in sentence) == (False, True)


def test_too_little_room_on_the_disk(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES", 1 << 80)
    assert "make room" in at_server(server)["disk"][1]


def at_site(scene: Scene, name: str = "good") -> dict[str, tuple[bool, str]]:
    directory = scene.directory.parent / name
    address = f"127.0.0.1:{scene.good.port}"
    return found(doctor.site_checks(directory, None, address, None))


def test_a_site_in_order(scene: Scene) -> None:
    with scene.proxy():
        results = at_site(scene)
    assert all(ok for ok, _ in results.values()), results
    assert "accepts this site's key, and has the same fedadb and flwr" in results["access"][1]
    assert "SHA256:" in results["keys"][1]


def test_a_site_whose_key_the_server_does_not_have(scene: Scene) -> None:
    (scene.directory / keys.SITES / "good.pub").unlink()
    with scene.proxy():
        results = at_site(scene)
    assert [name for name, (ok, _) in results.items() if not ok] == ["access"]
    assert "puts" in results["access"][1]


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ({"fedadb": "9.9", "flwr": "1"}, "the server has fedadb 9.9, and this site has"),
        ({}, "the server has fedadb None"),
        ([], "does not tell its versions (200): install the same"),
    ],
)
def test_a_server_of_another_version(
    there: object, reason: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.proxy():
        # The proxy runs in a thread of this process.
        monkeypatch.setattr(node_requests, "VERSIONS_HERE", there)
        results = at_site(scene)
    assert [name for name, (ok, _) in results.items() if not ok] == ["access"]
    assert reason in results["access"][1]


def test_versions_are_told_to_sites_only(scene: Scene) -> None:
    with scene.proxy():
        assert scene.good.post(node_requests.VERSIONS).json() == node_requests.VERSIONS_HERE
        assert not scene.superlink.received
        (scene.directory / keys.SITES / "good.pub").unlink()
        wait_for(lambda: scene.good.post(node_requests.VERSIONS).status_code == 401)


def test_a_site_whose_public_key_is_not_its_own(server: Path, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "bad" / keys.SITE_PUBLIC, tmp_path / "good" / keys.SITE_PUBLIC)
    result = found(doctor.site_checks(tmp_path / "good", None, None, None))["keys"]
    assert (result[0], "is not the public half of" in result[1]) == (False, True)


@pytest.mark.parametrize("date", ["", "yesterday", "Wed, 99 Foo 2026 99:99:99 GMT"])
def test_a_server_that_does_not_know_the_time(date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = httpx.Response(200, headers={"date": date})
    monkeypatch.setattr(way_to_server, "ask", lambda *_: answer)
    with pytest.raises(Fault, match="does not say what time it is"):
        way_to_server.same_clock(Path(), "x:1")


@pytest.mark.parametrize(("seconds", "ok"), [(-400, False), (-200, True), (60, False)])
def test_the_clock_of_a_site(seconds: int, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be 300 s behind the server's and 5 s ahead of it."""
    date = email.utils.formatdate(time.time() - seconds, usegmt=True)
    answer = httpx.Response(401, headers={"date": date})
    monkeypatch.setattr(way_to_server, "ask", lambda *_: answer)
    (result,) = found(
        [doctor.Check("clock", lambda: way_to_server.same_clock(Path(), "x:1"))]
    ).values()
    assert result[0] == ok
    assert ok or "set it, for example by NTP" in result[1]


def test_a_server_that_cannot_be_reached(scene: Scene) -> None:
    scene.good.port = free_port()
    results = at_site(scene)
    assert not results["server"][0]
    assert "check that the server runs, --server, the firewall" in results["server"][1]


def test_the_command_at_a_site(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text(Experiment().toml())
    write_data(tmp_path / "data.npz")
    words = ["deploy", "doctor", tmp_path / "good", file, "--data", f"npz:{tmp_path / 'data.npz'}"]
    done = invoke(*words)
    assert done.code == 0, done.err
    (tmp_path / "good" / keys.SITE_KEY).unlink()
    done = invoke(*words)
    text = " ".join(done.err.split())
    assert (done.code, "1 of 5 checks failed" in text) == (1, True), done
    assert "FAILED  keys:" in done.out
    assert "--site` makes it" in done.out


def test_another_version_of_flower_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts that are not public would fail to import."""
    monkeypatch.setattr(metadata, "version", lambda name: "1.0.0")
    done = invoke("deploy", "doctor", tmp_path)
    text = " ".join(done.err.split())
    assert (done.code, "Flower 1.0.0 is installed, but 1." in text) == (2, True), done
