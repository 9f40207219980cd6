"""Only the server's own sites get in, and only with the application that they accept."""

import os
import signal
import ssl
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fedadb.deploy import keys
from fedadb.deploy.agreement import write_application
from fedadb.deploy.ports import free_port
from fedadb.deploy.processes import FLOWER_ENVIRONMENT, flower_command
from fedadb.deploy.server import SUPERLINK, RunningServer
from tests.deploy.conftest import SHARED
from tests.deploy.federation import GUARD, RealFederation, experiment, wait_for

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


def test_a_run_cannot_be_submitted_from_outside(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    write_application(tmp_path / "application", SHARED)

    def flwr(address: str, *words: str) -> int:
        (tmp_path / "config.toml").write_text(
            f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{address}"\n'
            f'root-certificates = "{running.directory / keys.CA}"\n'
        )
        environment = {**os.environ, **FLOWER_ENVIRONMENT, "FLWR_HOME": str(tmp_path)}
        words = (flower_command("flwr"), *words, "x")
        return subprocess.run(words, env=environment, capture_output=True, timeout=GUARD).returncode

    before = len(running.flwr("list")["runs"])
    assert flwr(superlink_address(running), "list") == 0  # so the configuration is valid
    outside = f"localhost:{federation.port}"
    assert flwr(outside, "list") != 0
    assert flwr(outside, "run", str(tmp_path / "application")) != 0
    assert len(running.flwr("list")["runs"]) == before


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


class Refused(Exception):
    """The server reports that a site refuses the experiment."""


def test_a_site_accepts_only_the_application_of_its_own_experiment(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    other, out = experiment("feddyn", rounds=3), tmp_path / "run"

    def on_status(status: str) -> None:
        if "site-0: " in status:
            raise Refused(status)

    run = running.submit(other, out)
    differs = r"site-0: the server's experiment .*rounds is 3 there and 7 here"
    with pytest.raises(Refused, match=differs):
        list(running.follow(run, out, other.rounds, 0, on_status))
    running.flwr("stop", str(run))
    assert "rounds is 3 there and 7 here" in federation.log("site-0")
    assert not (out / "rounds.jsonl").exists()
