"""The server: its checks before any process starts, and how it follows a run."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fedadb import cli
from fedadb.algorithms.scaffold import SCAFFOLD
from fedadb.core.errors import BadInput, Fault, Temporary
from fedadb.core.packing import size
from fedadb.deploy import keys
from fedadb.deploy import server as server_module
from fedadb.deploy.job import Job
from fedadb.deploy.node import application_hash
from fedadb.deploy.notices import WARNING_SECONDS
from fedadb.deploy.ports import parse_address, require_free_port
from fedadb.deploy.processes import ProcessGroup, process_group
from fedadb.deploy.server import (
    CHECK_SECONDS,
    EXECUTOR,
    STALL_SECONDS,
    RunningServer,
    start_server,
    upload_limit,
)
from fedadb.deploy.server_app import FINISHED, reported, status_file
from fedadb.experiment.build import build_data, build_model
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import parse_toml
from fedadb.interruption import interrupted_by_sigterm
from fedadb.storage.records import append_record, read_records, truncate_records
from tests.deploy.conftest import Clock
from tests.deploy.federation import experiment


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
        pytest.raises(BadInput, match="south has the key of another site"),
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
        return {"runs": [{"status": self.state}], "run-id": 5}


@pytest.fixture
def make_server(tmp_path: Path) -> Callable[[str], FakeServer]:
    logs = tmp_path / "logs"
    keys.make_server_keys(tmp_path, ["localhost"], days=365)
    logs.mkdir()
    (logs / "executor.log").write_text("Killed\n\n")
    return lambda state: FakeServer(tmp_path, ProcessGroup(logs, {}), {}, state=state)


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
    clock.at(50, lambda: status_file(out).write_text("stopped: too few replies"))
    with pytest.raises(Fault, match=r"^too few replies$"):
        list(make_server("running").follow(1, out, 3, 0, print))


@pytest.mark.parametrize(
    ("error", "code"), [(BadInput("it"), 2), (Temporary("it"), 75), (Fault("it"), 1)]
)
def test_the_kind_of_the_reason_decides_on_the_exit_code(
    error: Exception,
    code: int,
    make_server: Callable[[str], FakeServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The executor, which is another process, writes the reason to the status file."""
    out = tmp_path / "run"
    with pytest.raises(type(error)), reported(out):
        raise error

    def follow(**_: Any) -> None:
        list(make_server("running").follow(1, out, 3, 0, print))

    monkeypatch.setattr(cli, "app", follow)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code


def test_a_certificate_that_ends_soon_is_announced_every_day(
    make_server: Callable[[str], FakeServer],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "POLL_SECONDS", 3600.0)
    server, shown = make_server("running"), list[str]()
    keys.renew_server_certificate(tmp_path, [], days=7)
    end = 2.5 * WARNING_SECONDS
    clock.at(end, lambda: status_file(tmp_path / "run").write_text("stopped: enough"))
    with pytest.raises(Fault, match="enough"):
        list(server.follow(1, tmp_path / "run", 3, 0, shown.append))
    assert len(shown) == 3
    assert all("server.crt expires on" in line for line in shown)


def test_an_authority_that_ends_soon_is_announced(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    server, shown = make_server("running"), list[str]()
    for name in (keys.CA, keys.SERVER):  # the new authority is valid for ten days
        (tmp_path / name).unlink()
    keys.make_server_keys(tmp_path / "other", ["localhost"], days=1)
    (tmp_path / keys.CA).write_bytes((tmp_path / "other" / keys.CA).read_bytes())
    clock.at(1, lambda: status_file(tmp_path / "run").write_text("stopped: enough"))
    with pytest.raises(Fault, match="enough"):
        list(server.follow(1, tmp_path / "run", 3, 0, shown.append))
    (line,) = shown
    assert "ca.crt expires on" in line
    assert "make new keys at the server" in line


def test_a_run_that_flower_ended_is_noticed(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    ended = r"Flower ended the run \(finished:failed\): Killed; the logs"
    with pytest.raises(Fault, match=ended):
        list(make_server("finished:failed").follow(1, tmp_path / "run", 3, 0, print))
    assert CHECK_SECONDS <= clock.now < CHECK_SECONDS + 2


def test_a_killed_executor_is_noticed_at_once(
    make_server: Callable[[str], FakeServer], tmp_path: Path
) -> None:
    server = make_server("running")
    server.processes.start(EXECUTOR, [sys.executable, "-c", "raise SystemExit('no')"], False)
    with pytest.raises(Fault, match=r"the executor was killed: no; .* resumes the run"):
        list(server.follow(1, tmp_path / "run", 3, 0, print))


def test_the_status_of_a_round_is_shown_if_it_does_not_change(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    out, shown = tmp_path / "run", list[tuple[str, int]]()
    out.mkdir()

    def write(status: str) -> Callable[[], int]:
        return lambda: status_file(out).write_text(status)

    clock.at(5, write("waiting for sites: 1 of 2 are connected (north)"))
    clock.at(50, write("round 1: asked north, south"))
    clock.at(70, write("round 1: asked north, south; north replied after 20 s"))
    clock.at(72, write("round 2: asked north, south"))
    clock.at(90, write("round 2: asked north, south; waiting for south"))
    clock.at(200, write("stopped: too few replies"))
    follow = make_server("running").follow
    with pytest.raises(Fault, match="too few replies"):
        list(follow(1, out, 3, 0, lambda status: shown.append((status, int(clock.now)))))
    assert shown == [
        ("waiting for sites: 1 of 2 are connected (north)", 5),
        ("round 2: asked north, south; waiting for south", 90 + int(STALL_SECONDS)),
    ]


def test_rounds_that_the_run_forgets_are_not_shown(
    make_server: Callable[[str], FakeServer], clock: Clock, tmp_path: Path
) -> None:
    """The executor deletes them only when all sites are connected."""
    out, path = tmp_path / "run", tmp_path / "run" / "rounds.jsonl"
    out.mkdir()
    for t in (1, 2, 3):
        append_record(path, {"round": t, "accuracy": 0.1})
    before = read_records(path)
    clock.at(100, lambda: truncate_records(path, 1))
    clock.at(200, lambda: append_record(path, {"round": 2, "accuracy": 0.5}))
    clock.at(201, lambda: append_record(path, {"round": 3, "accuracy": 0.6}))
    clock.at(202, lambda: status_file(out).write_text(FINISHED))
    rounds = make_server("running").follow(1, out, 3, 1, print, before[1:])
    assert [record["accuracy"] for record in rounds] == [0.5, 0.6]


def test_the_executor_gets_the_servers_experiment(
    make_server: Callable[[str], FakeServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submitted application has the shared settings only, and no path."""
    server, out, started = make_server("running"), tmp_path / "run", list[list[str]]()
    monkeypatch.setattr(ProcessGroup, "start", lambda self, name, words, **_: started.append(words))
    status_file(out).write_text("stopped: in an earlier run")
    e = experiment(wait=123.0)
    assert server.submit(e, out, from_round=2, any_kernels=True) == 5
    assert not status_file(out).exists()
    (command,) = started
    assert command[-2] == "fedadb.deploy.executor"
    job = Job.read(Path(command[-1]))
    assert (job.run, job.out, job.from_round, job.any_kernels) == (5, str(out), 2, True)
    assert Experiment.read(parse_toml(job.experiment, "")) == e
    assert job.application == application_hash(tmp_path / "application")
    submitted = (tmp_path / "application" / "pyproject.toml").read_text()
    assert "123" not in submitted
    assert str(tmp_path) not in submitted


def test_a_site_may_upload_twice_the_size_of_a_reply() -> None:
    e = experiment()
    model = size(build_model(e, build_data(e).spec).weights())
    rows = torch.tensor(5).nbytes
    assert upload_limit(e) == 2 * (model + rows) + (1 << 20)
    scaffold = e.model_copy(update={"algorithm": SCAFFOLD()})
    assert upload_limit(scaffold) == 2 * (2 * model + rows) + (1 << 20)


@pytest.fixture
def sigterm() -> Iterator[Callable[[], None]]:
    """Sends SIGTERM to this process, which fails if nothing handles it."""

    def fail(*_: object) -> None:
        pytest.fail("SIGTERM is not handled")

    previous = signal.signal(signal.SIGTERM, fail)
    yield lambda: os.kill(os.getpid(), signal.SIGTERM)
    signal.signal(signal.SIGTERM, previous)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_stopped_server(
    number: str,
    code: int,
    sigterm: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def start(*_: Any) -> Iterator[RunningServer]:
        with process_group(tmp_path / "logs", {}):
            sigterm() if number == "SIGTERM" else interrupt()
            yield FakeServer(tmp_path, ProcessGroup(tmp_path / "logs", {}), {})

    monkeypatch.setattr("fedadb.deploy.server.start_server", start)
    file, out = tmp_path / "e.toml", tmp_path / "runs" / "run"
    file.write_text(experiment().toml())
    words = ["deploy", "server", str(tmp_path), str(file), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["fedadb", *words])
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == code
    resumes = f"this resumes: fedadb {' '.join(words)}"
    assert f"stopped; finished rounds are kept, and {resumes}" in result.stderr
    assert status_file(out).read_text() == "stopped: by the operator"


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_stopped_site_that_is_not_connected(
    number: str,
    code: int,
    sigterm: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(*_: Any) -> None:
        sigterm() if number == "SIGTERM" else interrupt()

    monkeypatch.setattr("fedadb.deploy.site.run_site", wait)
    file = tmp_path / "e.toml"
    file.write_text(experiment().toml())
    words = ["deploy", "site", str(tmp_path), str(file), "--server", "x:1", "--data", "npz:x"]
    monkeypatch.setattr("sys.argv", ["fedadb", *words])
    with interrupted_by_sigterm():  # as `main` does
        result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == code
    assert f"this connects again: fedadb {' '.join(words)}" in result.stderr
