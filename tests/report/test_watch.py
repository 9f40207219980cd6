"""The live page: it follows runs, and only this machine may read it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from fedadb.core.errors import BadInput
from fedadb.report.watch import LiveData, serve_page
from fedadb.storage.searches import read_search, write_search
from tests.report.synthetic_runs import make_run, make_search, read_records, write_records


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("fedavg", "fedadb"):
        make_run(tmp_path / "runs", [0.1, 0.5, 0.5], algorithm=name)
    return tmp_path / "runs"


@pytest.fixture
def address(runs: Path) -> Iterator[str]:
    with serve_page(LiveData([runs], "live"), 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_watching_shows_rounds_as_they_are_done(runs: Path, address: str) -> None:
    def fetch(path: str, version: str = "") -> tuple[str, str]:
        request = urllib.request.Request(address + path, headers={"If-None-Match": version})
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode(), answer.headers.get("ETag", "")

    page, _ = fetch("/")
    assert "<body data-live>" in page
    data, version = fetch("/data.json")
    assert len(json.loads(data)["runs"][0]["t"]) == 3
    with pytest.raises(urllib.error.HTTPError, match="304"):
        fetch("/data.json", version)
    run = next(runs.glob("digits-fedavg-seed0-*"))
    records = read_records(run)
    write_records(run, [*records, {**records[-1], "round": 4}])
    data, _ = fetch("/data.json", version)
    assert max(len(r["t"]) for r in json.loads(data)["runs"]) == 4
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch("/etc/passwd")
    elsewhere = urllib.request.Request(address, headers={"Host": "example.org"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(elsewhere)


def test_watching_follows_searches(tmp_path: Path) -> None:
    """A better trial is chosen when its search says so, though no run has changed."""
    path = make_search(tmp_path, {0.01: 0.5, 0.1: 0.7}, algorithm="fedadb")
    live, search = LiveData([tmp_path], ""), read_search(path)
    write_search(path, search._replace(trials=search.trials[:1]))

    def accuracy() -> list[float]:
        return [run["accuracy"][-1] for run in json.loads(live.json())["runs"]]

    assert sorted(accuracy()) == [50, 70]  # the second run is no trial yet
    write_search(path, search)
    assert accuracy() == [70]


def test_a_run_that_becomes_unreadable_is_an_error_beside_the_last_data(runs: Path) -> None:
    live = LiveData([runs], "live")
    assert json.loads(live.json())["errors"] == []
    damaged = next(runs.glob("digits-fedavg-seed0-*"))
    (damaged / "rounds.jsonl").write_text("nonsense\n")
    data = json.loads(live.json())
    assert len(data["runs"]) == 1
    assert "rounds.jsonl is damaged" in data["errors"][0]


def test_a_port_in_use_is_an_error(runs: Path, address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(BadInput, match=f"--port {port}: Address already in use"):
        serve_page(LiveData([runs], ""), port)
