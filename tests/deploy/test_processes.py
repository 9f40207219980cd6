"""Real processes, TLS and keys: same numbers, faults, restarts, and nobody else gets in."""

import os
import signal
import ssl
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedadb.core.errors import Fault
from fedadb.deploy import keys
from fedadb.deploy.application import write_application
from fedadb.deploy.processes import QUIET, free_port, program
from fedadb.deploy.server import Server, server
from fedadb.storage.records import read_records
from fedadb.storage.tensorfile import read_tensors
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from tests.deploy.federation import Federation, experiment, wait_for

# On one worker: they share a server, and the machine is busy enough with its processes.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Federation, Server]]:
    federation = Federation(tmp_path_factory.mktemp("federation"))
    federation.prepare()
    with server(federation.server, "127.0.0.1", federation.port) as running:
        yield federation, running


@pytest.fixture
def federation(up: tuple[Federation, Server]) -> Iterator[Federation]:
    yield up[0]
    up[0].stop_all()


@pytest.fixture
def running(up: tuple[Federation, Server]) -> Server:
    return up[1]


def train(running: Server, e: Experiment, out: Path) -> list[dict[str, Any]]:
    number = running.submit(e, out)
    return list(running.rounds(number, out, e.rounds, 0, lambda status: None))


def weights(out: Path) -> dict[str, torch.Tensor]:
    return read_tensors(out / "model.safetensors", "")[0]


def require_equal(one: Path, other: Path) -> None:
    expected, got = weights(one), weights(other)
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


@pytest.mark.parametrize("algorithm", ["fedavg", "feddyn", "fedadb"])
def test_the_same_bits_as_in_one_process(
    algorithm: str, federation: Federation, running: Server, tmp_path: Path
) -> None:
    e = experiment({"name": "fedadb", "steps": 5} if algorithm == "fedadb" else algorithm)
    for k in range(2):
        federation.start_site(k, e)
    records = train(running, e, tmp_path / "there")
    expected = run(e, tmp_path / "here").rounds
    assert [r["accuracy"] for r in records] == [r["accuracy"] for r in expected]
    assert [r["bytes_up"] for r in records] == [r["bytes_up"] for r in expected]
    require_equal(tmp_path / "here", tmp_path / "there")
    remembered = list((federation.place / "site-0" / "state").glob("*/*.safetensors"))
    assert remembered or algorithm != "feddyn"
    assert federation.stop("site-0") == 0


def test_what_goes_wrong_at_a_site(federation: Federation, running: Server, tmp_path: Path) -> None:
    e = experiment(rounds=9, deadline=8.0, min_replies=1)
    federation.start_site(0, e)
    federation.start_site(1, e, "tests.deploy.bad_site")
    number = running.submit(e, tmp_path / "run")
    rounds = running.rounds(number, tmp_path / "run", e.rounds, 0, lambda status: None)
    reasons = [next(rounds)["lost"]["site-1"] for _ in range(5)]
    for reason, part in zip(
        reasons,
        ["are not finite", "has shape (3, 3)", "RuntimeError: the disk is full", "is missing;",
         "did not answer within 8 s"],
        strict=True,
    ):  # fmt: skip
        assert part in reason
    federation.running.pop("site-1").wait(10)  # it killed itself in round 5
    federation.start_site(1, e)
    left = list(rounds)
    assert "lost" not in left[-1], federation.said("site-1")
    assert [line["clients"] for line in left][-1] in ([0, 1], [1, 0])


def test_a_site_that_never_answers_and_too_few_replies(
    federation: Federation, running: Server, tmp_path: Path
) -> None:
    e = experiment(rounds=5, deadline=4.0, min_replies=2, retries=0)
    for k in range(2):
        federation.start_site(k, e)
    out = tmp_path / "run"
    number = running.submit(e, out)
    wait_for(lambda: "connected" in federation.said("site-1"))
    rounds = running.rounds(number, out, e.rounds, 0, lambda status: None)
    next(rounds)
    federation.running["site-1"].send_signal(signal.SIGSTOP)
    told = r"round \d: 1 of 2 sites replied and 2 are needed \(site-1: did not answer within 4 s"
    with pytest.raises(Fault, match=told):
        list(rounds)
    federation.running["site-1"].send_signal(signal.SIGCONT)
    records = train(running, e, out)
    assert [r["round"] for r in records] == [1, 2, 3, 4, 5]
    run(e, tmp_path / "here")
    require_equal(tmp_path / "here", out)


def test_a_server_that_is_killed_goes_on(tmp_path: Path) -> None:
    e = experiment("feddyn", rounds=4)
    own = Federation(tmp_path)
    own.prepare()
    (tmp_path / "e.toml").write_text(e.toml())
    words = ["-m", "fedadb", "deploy", "server", str(own.server), str(tmp_path / "e.toml")]
    words += ["--out", str(tmp_path / "run"), "--listen", f"127.0.0.1:{own.port}"]
    try:
        for k in range(2):
            own.start_site(k, e)
        own.start("server", words)
        wait_for(lambda: read_records(tmp_path / "run" / "rounds.jsonl"), 90)
        own.stop("server", signal.SIGKILL)
        done = len(read_records(tmp_path / "run" / "rounds.jsonl"))
        assert 1 <= done < 4
        wait_for(lambda: not _listens(own.port))
        own.start("server", words)
        wait_for(lambda: (tmp_path / "run" / "model.safetensors").exists(), 120)
        assert own.running["server"].wait(60) == 0, own.said("server")
    finally:
        own.stop_all()
    run(e, tmp_path / "here")
    require_equal(tmp_path / "here", tmp_path / "run")


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# nobody else gets in


def post(url: str, ca: Path) -> int:
    context = ssl.create_default_context(cafile=str(ca))
    request = urllib.request.Request(url, b"", {"content-type": "application/protobuf"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/pull-messages/../../control/list-runs",
        "/health",
        "/docs",
    ],
)
def test_only_the_nodes_api_is_published(path: str, federation: Federation) -> None:
    ca = federation.server / keys.CA
    assert post(f"https://localhost:{federation.port}{path}", ca) == 403


def inner_address(running: Server) -> str:
    """Where the SuperLink itself listens, for this machine alone."""
    config = tomllib.loads((running.directory / "flower" / "config.toml").read_text())
    return str(config["superlink"]["fedadb"]["address"])


def test_the_runtime_wants_its_secret_even_on_this_machine(running: Server) -> None:
    ca = running.directory / keys.CA
    assert post(f"https://{inner_address(running)}/v1/runtime/acquire-task", ca) in (401, 403)


def test_a_run_cannot_be_submitted_from_outside(
    federation: Federation, running: Server, tmp_path: Path
) -> None:
    write_application(tmp_path / "application", experiment())

    def flwr(address: str, *words: str) -> int:
        (tmp_path / "config.toml").write_text(
            f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{address}"\n'
            f'root-certificates = "{federation.server / keys.CA}"\n'
        )
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(tmp_path)}
        words = (program("flwr"), *words, "x")
        return subprocess.run(words, env=environment, capture_output=True, timeout=60).returncode

    before = len(running.flwr("list")["runs"])
    assert flwr(inner_address(running), "list") == 0  # so it is not the configuration
    outer = f"localhost:{federation.port}"
    assert flwr(outer, "list") != 0
    assert flwr(outer, "run", str(tmp_path / "application")) != 0
    assert len(running.flwr("list")["runs"]) == before


def site(federation: Federation, directory: Path, port: int) -> tuple[int, str]:
    words = [sys.executable, "-m", "fedadb", "deploy", "site", str(directory)]
    file = federation.place / "site-0" / "outsider.toml"
    file.write_text(experiment().toml())
    data = f"npz:{federation.place / 'site-0' / 'data.npz'}"
    words += [str(file), "--server", f"localhost:{port}", "--data", data]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_node_without_a_known_key_is_refused(federation: Federation, tmp_path: Path) -> None:
    keys.make_site_keys(tmp_path / "stranger")
    (tmp_path / "stranger" / "ca.crt").write_bytes((federation.server / "ca.crt").read_bytes())
    code, said = site(federation, tmp_path / "stranger", federation.port)
    assert (code, "does not let this site in" in said) == (2, True), said


def test_a_server_with_another_certificate_is_refused(
    federation: Federation, tmp_path: Path
) -> None:
    keys.make_server_keys(tmp_path / "other", ["localhost"], days=2)
    keys.make_site_keys(tmp_path / "site")
    (tmp_path / "site" / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    code, said = site(federation, tmp_path / "site", federation.port)
    assert (code, "is not the server that" in said) == (2, True), said


def test_a_node_that_speaks_plain_text_is_not_heard(federation: Federation, tmp_path: Path) -> None:
    words = [program("flower-supernode"), "--insecure", "--max-retries", "1"]
    words += ["--superlink", f"localhost:{federation.port}", "--port", str(free_port())]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of its own helpers
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(tmp_path), "PATH": path}
    said = tmp_path / "log"
    with said.open("wb") as log:
        node = subprocess.Popen(
            words, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(lambda: "Failed to initialize the connection" in said.read_text())
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()


def test_a_site_accepts_only_the_application_it_was_told(
    federation: Federation, running: Server, tmp_path: Path
) -> None:
    told, sent = experiment(rounds=2), experiment(rounds=3, wait=6.0)
    for k in range(2):
        federation.start_site(k, told)
    with pytest.raises(
        Fault, match=r"site-0: the server's experiment .*rounds is 3 there and 2 he"
    ):
        train(running, sent, tmp_path / "run")
    assert "rounds is 3 there and 2 here" in federation.said("site-0")
    assert not (tmp_path / "run" / "rounds.jsonl").exists()
