"""Only the server's own sites get in, and only with the application that they accept."""

import os
import signal
import ssl
import stat
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supernode.fleet_http_connection import http_request_response

from fedadb.core.errors import Fault
from fedadb.deploy import keys
from fedadb.deploy.agreement import shared_experiment, write_application
from fedadb.deploy.ports import free_port
from fedadb.deploy.processes import FLOWER_ENVIRONMENT, flower_command
from fedadb.deploy.server import RunningServer
from fedadb.deploy.server_commands import SUPERLINK
from fedadb.experiment.run import History
from tests.deploy.conftest import SHARED
from tests.deploy.federation import (
    GUARD,
    RealFederation,
    experiment,
    require_equal_weights,
    wait_for,
)

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]


def post(url: str, ca: Path) -> int:
    """The HTTP status of an empty request."""
    context = ssl.create_default_context(cafile=str(ca))
    request = urllib.request.Request(url, b"", {"content-type": "application/protobuf"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=GUARD) as response:
            return int(response.status)
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
def test_only_the_nodes_api_is_published(
    path: str, federation: RealFederation, running: RunningServer
) -> None:
    ca = running.directory / keys.CA
    assert post(f"https://localhost:{federation.port}{path}", ca) == 403


def superlink_address(running: RunningServer) -> str:
    """The address at which the SuperLink listens for this machine alone."""
    config = tomllib.loads((running.directory / "flower" / "config.toml").read_text())
    return str(config["superlink"][SUPERLINK]["address"])


def test_the_runtime_api_requires_the_secret_even_on_this_machine(running: RunningServer) -> None:
    ca = running.directory / keys.CA
    assert post(f"https://{superlink_address(running)}/v1/runtime/acquire-task", ca) in (401, 403)


def stranger(running: RunningServer, home: Path, address: str) -> RunningServer:
    """Flower's command line for someone who only knows the certificate and an address."""
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{SUPERLINK}"\n[superlink.{SUPERLINK}]\naddress = "{address}"\n'
        f'root-certificates = "{running.directory / keys.CA}"\n'
    )
    return replace(running, environment={"FLWR_HOME": str(home)})


def test_a_run_cannot_be_submitted_from_outside(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    write_application(tmp_path / "application", SHARED)
    before = len(running.flwr("list")["runs"])
    stranger(running, tmp_path, superlink_address(running)).flwr("list")  # the configuration works
    outside = stranger(running, tmp_path, f"localhost:{federation.port}")
    for words in (["list"], ["run", str(tmp_path / "application")]):
        with pytest.raises(Fault):
            outside.flwr(*words)
    assert len(running.flwr("list")["runs"]) == before


def test_a_submitted_application_is_not_executed(
    federation: RealFederation, running: RunningServer, simulated: History, tmp_path: Path
) -> None:
    """Another user of the server's machine submits an application, and connects as a site.

    The application is refused, the node is ignored, and the server's own run is not disturbed.
    """
    application, marker, out = tmp_path / "application", tmp_path / "marker", tmp_path / "run"
    write_application(application, shared_experiment(SHARED))
    with (application / "federation" / "__init__.py").open("a") as code:
        code.write(f"\nopen({str(marker)!r}, 'w').close()\n")
    keys.make_site_keys(tmp_path / "site")
    public = tmp_path / "site" / keys.SITE_PUBLIC
    intruder = stranger(running, tmp_path, superlink_address(running))
    foreign = str(intruder.flwr("run", str(application))["run-id"])
    intruder.flwr("supernode", "register", str(public), "--name", "site-0")
    private: Any = load_ssh_private_key((tmp_path / "site" / keys.SITE_KEY).read_bytes(), None)
    certificate = (running.directory / keys.CA).read_bytes()
    node = http_request_response(
        superlink_address(running), False, certificate, (private, private.public_key())
    )
    node.__enter__()  # not `with`: Flower's context manager suppresses exceptions
    try:
        own = running.submit(SHARED, out)
        rounds = running.follow(own, out, SHARED.rounds, 0, lambda status: None)

        def foreign_state() -> str:
            return str(running.flwr("list", "--run-id", foreign)["runs"][0]["status"])

        wait_for(lambda: foreign_state().startswith("finished"))
        assert not marker.exists()
        assert foreign_state() == "finished:failed"
        assert len(list(rounds)) == SHARED.rounds
    finally:
        node.__exit__(None, None, None)
    require_equal_weights(simulated.directory, out)
    assert not marker.exists()
    # The SuperLink's logs and the sites' state are the only other traces of the foreign run.
    assert stat.S_IMODE((running.directory / "executor.json").stat().st_mode) == 0o600


def run_outsider(federation: RealFederation, directory: Path) -> tuple[int, str]:
    """The exit code and the errors of a site with the keys of the directory."""
    words = [sys.executable, "-m", "fedadb", "deploy", "site", str(directory)]
    file = directory / "experiment.toml"
    file.write_text(SHARED.toml())
    data = f"npz:{federation.site(0) / 'data.npz'}"
    words += [str(file), "--server", f"localhost:{federation.port}", "--data", data]
    done = subprocess.run(words, capture_output=True, text=True, timeout=GUARD)
    return done.returncode, done.stderr


def test_a_site_with_an_unknown_key_is_refused(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    keys.make_site_keys(tmp_path)
    (tmp_path / "ca.crt").write_bytes((running.directory / keys.CA).read_bytes())
    code, errors = run_outsider(federation, tmp_path)
    assert (code, "does not accept this site" in errors) == (2, True), errors


def test_a_site_refuses_a_server_with_another_certificate(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    keys.make_server_keys(tmp_path / "other", ["localhost"], days=2)
    keys.make_site_keys(tmp_path / "site")
    (tmp_path / "site" / "ca.crt").write_bytes((tmp_path / "other" / keys.CA).read_bytes())
    code, errors = run_outsider(federation, tmp_path / "site")
    assert (code, "has no certificate that" in errors) == (2, True), errors


def test_a_node_without_tls_cannot_connect(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    words = [flower_command("flower-supernode"), "--insecure", "--max-retries", "1"]
    words += ["--superlink", f"localhost:{federation.port}", "--port", str(free_port())]
    # The SuperNode starts other commands of Flower by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **FLOWER_ENVIRONMENT, "FLWR_HOME": str(tmp_path), "PATH": path}
    log = tmp_path / "log"
    with log.open("wb") as file:
        node = subprocess.Popen(
            words, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        wait_for(lambda: "Failed to initialize the connection" in log.read_text())
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()


def test_a_site_accepts_only_the_application_of_its_own_experiment(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    other, out = experiment("feddyn", rounds=3), tmp_path / "run"
    run = running.submit(other, out)
    differs = r"site-[01].*: the server's experiment .*rounds is 3 there and 7 here"
    with pytest.raises(Fault, match=differs):
        list(running.follow(run, out, other.rounds, 0, lambda status: None))
    assert any("rounds is 3 there and 7 here" in federation.log(f"site-{k}") for k in range(2))
    assert not (out / "rounds.jsonl").exists()
