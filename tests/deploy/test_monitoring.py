"""What monitoring programs see, and what they cannot do."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedadb.deploy import keys, monitoring
from fedadb.deploy.accepted_sites import ACCEPTED, CONNECTED
from fedadb.deploy.connections import Limits
from fedadb.deploy.metrics import STATES, Watched, health, metrics_text, state
from fedadb.deploy.monitoring import monitored
from fedadb.deploy.ports import free_port, is_open
from fedadb.deploy.server_app import status_file
from fedadb.storage.records import append_record
from tests.deploy.conftest import Clock
from tests.deploy.federation import GUARD, ROOT, experiment

DASHBOARD = ROOT / "deploy" / "grafana" / "fedadb.json"


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    server, out = tmp_path / "server", tmp_path / "run"
    keys.make_server_keys(server, ["localhost"], days=3)
    (server / ACCEPTED).mkdir()
    (server / ACCEPTED / "hospital-of-x.pub").write_text("key")
    (server / CONNECTED).write_text("1")
    out.mkdir()
    return Watched(server, out, experiment(rounds=9))


def add_round(watched: Watched, t: int, lost: dict[str, str]) -> None:
    record: dict[str, Any] = {"round": t, "accuracy": 0.25 * t, "clients": [0, 1][len(lost) :]}
    record |= {"seconds": 2.5, "bytes_down": 1000, "bytes_up": 100.0, "lost": lost}
    append_record(watched.out / "rounds.jsonl", record)


def numbers(text: str) -> dict[str, float]:
    """The metrics of a text in the form of Prometheus, which is checked."""
    found, declared = {}, set()
    for line in text.splitlines():
        if comment := re.fullmatch(r"# (?:HELP (\w+) \S.*\.|TYPE (\w+) (?:gauge|counter))", line):
            declared.add(comment[1] or comment[2])
            continue
        sample = re.fullmatch(r'(([a-z_]+)(?:\{[a-z]+="[^"]+"\})?) ([-+.e\d]+)', line)
        assert sample, line
        assert sample[2] in declared
        found[sample[1]] = float(sample[3])
    return found


def test_the_metrics_of_a_run(watched: Watched) -> None:
    add_round(watched, 1, {})
    add_round(watched, 2, {"hospital-of-x": "disconnected"})
    status_file(watched.out).write_text("round 3: asked hospital-of-x")
    text = metrics_text(watched)
    assert "hospital" not in text
    found = numbers(text)
    expected = {
        "fedadb_rounds_finished": 2,
        "fedadb_rounds_planned": 9,
        "fedadb_sites_needed": 2,
        "fedadb_sites_accepted": 1,
        "fedadb_sites_connected": 1,
        "fedadb_replies_used_total": 3,
        "fedadb_replies_lost_total": 1,
        "fedadb_sent_bytes_total": 4000,
        "fedadb_received_bytes_total": 300,
        "fedadb_round_seconds_total": 5,
        "fedadb_last_round_seconds": 2.5,
        "fedadb_accuracy": 0.5,
        'fedadb_run_state{state="training"}': 1,
        'fedadb_run_state{state="stopped"}': 0,
    }
    assert {name: found[name] for name in expected} == expected
    add_round(watched, 3, {"hospital-of-x": "is not connected"})  # nothing is sent to it
    assert numbers(metrics_text(watched))["fedadb_sent_bytes_total"] == 5000
    ends = found['fedadb_certificate_end_timestamp_seconds{certificate="server"}']
    made = (watched.directory / keys.SERVER).stat().st_mtime
    assert ends == pytest.approx(made + 3 * 86400, abs=3)


def test_the_metrics_of_a_private_run_do_not_tell_who_replied(watched: Watched) -> None:
    """Nor how long a round took: a slow site, or none, would be noticed."""
    record: dict[str, Any] = {"round": 1, "accuracy": 0.5, "clients": [], "bytes_down": 1000}
    append_record(watched.out / "rounds.jsonl", record | {"seconds": None, "epsilon": 1.0})
    found = numbers(metrics_text(watched))
    assert (found["fedadb_rounds_finished"], found["fedadb_accuracy"]) == (1, 0.5)
    hidden = ("seconds_total", "round_seconds", "replies", "bytes")
    assert not [name for name in found if any(word in name for word in hidden)]


def test_the_metrics_before_the_first_round(watched: Watched) -> None:
    (watched.directory / CONNECTED).unlink()
    found = numbers(metrics_text(watched))
    assert (found["fedadb_rounds_finished"], found["fedadb_sites_connected"]) == (0, 0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("", "starting"),
        ("waiting for sites: 1 of 2 are connected (x)", "waiting"),
        ("round 3: asked x", "training"),
        ("finished", "finished"),
        ("stopped: by the operator", "stopped"),
        ("stopped for now: not all sites connected", "stopped"),
        ("refused: rounds", "stopped"),
    ],
)
def test_the_state_of_a_run(status: str, expected: str, watched: Watched) -> None:
    if status:
        status_file(watched.out).write_text(status)
    assert state(watched) == expected
    assert expected in STATES
    ok, text = health(watched)
    assert ok == (expected != "stopped")
    assert json.loads(text) == {"state": expected, "round": 0, "rounds": 9}


@pytest.fixture
def address(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(monitoring, "LIMITS", Limits(first_request=GUARD, strangers=3))
    monkeypatch.setattr(monitoring, "FRESH_SECONDS", 0.0)
    place = ("127.0.0.1", free_port())
    with monitored(watched, *place):
        yield place
    assert not is_open(*place)


def ask(address: tuple[str, int], path: str, method: str = "GET") -> httpx.Response:
    url = f"http://{address[0]}:{address[1]}{path}"
    with httpx.Client(timeout=GUARD, trust_env=False) as client:
        return client.request(method, url)


def test_two_paths_answer_to_get(address: tuple[str, int], watched: Watched) -> None:
    answer = ask(address, "/metrics")
    assert (answer.status_code, "fedadb_rounds_planned 9" in answer.text) == (200, True)
    assert ask(address, "/health").json()["state"] == "starting"
    status_file(watched.out).write_text("stopped: too few replies from hospital-of-x")
    stopped = ask(address, "/health")
    assert (stopped.status_code, "hospital" in stopped.text) == (503, False)
    for path in ("/", "/metrics/", "/health?x=1", "/../server/ca.key", "/docs"):
        assert ask(address, path).status_code == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(address, "/metrics", method).status_code == 405


def test_many_requests_read_the_files_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(monitoring, "time", clock)
    answers = monitoring.Answers(watched)
    first = answers.respond("GET", "/metrics")
    add_round(watched, 1, {})
    assert answers.respond("GET", "/metrics") is first
    assert b'"round": 1' in answers.respond("GET", "/health").content
    clock.sleep(monitoring.FRESH_SECONDS)
    assert b"fedadb_rounds_finished 1\n" in answers.respond("GET", "/metrics").content


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\nx", b"200"),
        (b"POST /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"405"),
        (b"HEAD /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"405"),
        (b"GET http://x/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"404"),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),  # TLS
        (b"GET /health\r\n\r\n", b"400"),
    ],
)
def test_odd_requests_are_answered_and_closed(
    request_: bytes, status: bytes, address: tuple[str, int]
) -> None:
    with socket.create_connection(address, GUARD) as opened:
        opened.sendall(request_)
        answer = b""
        with contextlib.suppress(ConnectionError):  # what it did not read is refused
            while block := opened.recv(1 << 16):
                answer += block
    assert answer.split(b" ")[1] == status
    assert ask(address, "/health").status_code == 200


def test_a_head_without_an_end_is_cut_off(address: tuple[str, int]) -> None:
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(address, GUARD) as opened,
    ):
        opened.sendall(b"GET /health HTTP/1.1\r\nx: " + b"a" * (8 << 20))
        while opened.recv(1 << 16):
            pass
    assert ask(address, "/health").status_code == 200


def test_damaged_records_are_no_traceback(address: tuple[str, int], watched: Watched) -> None:
    (watched.out / "rounds.jsonl").write_text("{}\n")
    answer = ask(address, "/metrics")
    assert (answer.status_code, str(watched.out) in answer.text) == (500, False)


def test_idle_connections_do_not_keep_monitoring_out(address: tuple[str, int]) -> None:
    opened = [socket.create_connection(address, GUARD) for _ in range(10)]
    try:
        assert ask(address, "/health").status_code == 200
        assert opened[0].recv(1) == b""  # the oldest made room
    finally:
        for one in opened:
            one.close()


def test_the_dashboard_shows_metrics_that_exist(watched: Watched) -> None:
    add_round(watched, 1, {})
    names = {name.partition("{")[0] for name in numbers(metrics_text(watched))}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for expression in shown for name in re.findall(r"fedadb_\w+", expression)}
    assert used <= names
    assert names - used == {"fedadb_info"}
