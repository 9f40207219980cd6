"""The application on Flower's own runtimes: its simulation, and SuperNodes as they come."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedadb.deploy.application import write_application
from fedadb.deploy.processes import QUIET, Processes, free_port, processes, program, wait_until_open
from fedadb.storage.tensorfile import read_tensors
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from tests.deploy.federation import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]

E = Experiment.read(
    {
        "rounds": 2,
        "algorithm": "feddyn",
        "local": {"epochs": 1},
        "federation": {"clients": 2, "participation": 1.0},
        "deployment": {"wait": 60.0},
    }
)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path / "logs", {"FLWR_HOME": str(tmp_path)}) as started:
        yield started


def superlink(held: Processes, place: Path, *more: str) -> int:
    port = free_port()
    words = ["--insecure", "--host", "127.0.0.1", "--port", str(port), *more]
    held.start("superlink", [program("flower-superlink"), *words])
    wait_until_open(held, port, 60, "the SuperLink")
    address = f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (place / "config.toml").write_text(f'[superlink]\ndefault = "here"\n{address}')
    return port


def flwr_run(place: Path, *more: str) -> None:
    write_application(place / "application", E)
    words = ["run", str(place / "application"), "here", "--run-config", f'out="{place / "run"}"']
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(place)}
    done = subprocess.run([program("flwr"), *words, *more], env=environment, timeout=60)
    assert done.returncode == 0
    status = place / "run.status.txt"
    wait_for(lambda: status.exists() and status.read_text().startswith(("fin", "stop")), 100)
    assert status.read_text() == "finished"


def require_same(place: Path) -> None:
    run(E, place / "here")
    got, expected = (
        read_tensors(place / name / "model.safetensors", "")[0] for name in ("run", "here")
    )
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_simulation(held: Processes, tmp_path: Path) -> None:
    superlink(held, tmp_path, "--simulation")
    resources = "num-supernodes=2 client-resources-num-cpus=1 init-args-num-cpus=2"
    flwr_run(tmp_path, "--federation-config", resources)
    require_same(tmp_path)


@pytest.mark.slow
def test_stock_supernodes(held: Processes, tmp_path: Path) -> None:
    port = superlink(held, tmp_path)
    for k in range(2):
        state = tmp_path / f"state-{k}"
        words = [program("flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{port}"]
        config = f'partition-id={k} state="{state}"'
        words += ["--node-config", config, "--port", str(free_port())]
        held.start(f"supernode-{k}", words)
    flwr_run(tmp_path)
    require_same(tmp_path)
    assert all(list((tmp_path / f"state-{k}").glob("*/*.safetensors")) for k in range(2))
