"""The application on Flower's own runtimes: its simulation, and its SuperNodes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedadb.deploy.agreement import write_application
from fedadb.deploy.ports import free_port
from fedadb.deploy.processes import FLOWER_ENVIRONMENT, ProcessGroup, flower_command, process_group
from fedadb.deploy.server_app import FINISHED, STOPPED, status_file
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from tests.deploy.federation import GUARD, require_equal_weights, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]

E = Experiment.read(
    {
        "rounds": 2,
        "algorithm": "feddyn",
        "local": {"epochs": 1},
        "federation": {"clients": 2, "participation": 1.0},
        "deployment": {"wait": GUARD},
    }
)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ProcessGroup]:
    with process_group(tmp_path / "logs", {"FLWR_HOME": str(tmp_path)}) as group:
        yield group


def start_superlink(processes: ProcessGroup, directory: Path, *options: str) -> int:
    """Start a SuperLink without TLS; returns its port."""
    port = free_port()
    words = ["--insecure", "--host", "127.0.0.1", "--port", str(port), *options]
    processes.start("superlink", [flower_command("flower-superlink"), *words])
    processes.wait_until_open("superlink", "127.0.0.1", port, GUARD)
    address = f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (directory / "config.toml").write_text(f'[superlink]\ndefault = "here"\n{address}')
    return port


def train(directory: Path, *options: str) -> None:
    """Train with `flwr run`, and compare the weights with those of our own simulation."""
    out = directory / "run"
    write_application(directory / "application", E)
    words = ["run", str(directory / "application"), "here", "--run-config", f'out="{out}"']
    environment = {**os.environ, **FLOWER_ENVIRONMENT, "FLWR_HOME": str(directory)}
    words = [flower_command("flwr"), *words, *options]
    assert subprocess.run(words, env=environment, timeout=GUARD).returncode == 0
    status = status_file(out)
    wait_for(lambda: status.exists() and status.read_text().startswith((FINISHED, *STOPPED)))
    assert status.read_text() == FINISHED
    run(E, directory / "simulated")
    require_equal_weights(directory / "simulated", out)


def test_flowers_simulation(processes: ProcessGroup, tmp_path: Path) -> None:
    start_superlink(processes, tmp_path, "--simulation")
    resources = "num-supernodes=2 client-resources-num-cpus=1 init-args-num-cpus=2"
    train(tmp_path, "--federation-config", resources)


# Slow, because a SuperNode starts a Python process for each message.
@pytest.mark.slow
def test_flowers_supernodes(processes: ProcessGroup, tmp_path: Path) -> None:
    port = start_superlink(processes, tmp_path)
    for k in range(2):
        words = [flower_command("flower-supernode"), "--insecure"]
        words += ["--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
        config = f'partition-id={k} state="{tmp_path / f"state-{k}"}"'
        processes.start(f"supernode-{k}", [*words, "--node-config", config])
    train(tmp_path)
    assert all(list((tmp_path / f"state-{k}").glob("*/*.safetensors")) for k in range(2))
