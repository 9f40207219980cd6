"""A real federation on this machine: keys, sites' data, and processes for everyone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedadb.deploy import keys
from fedadb.deploy.processes import free_port
from fedadb.experiment.build import build
from fedadb.experiment.config import Experiment

ROOT = Path(__file__).parents[2]


def experiment(algorithm: Any = "fedavg", rounds: int = 3, **deployment: Any) -> Experiment:
    """Two sites, both in every round."""
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "local": {"epochs": 1},
            "federation": {"clients": 2, "participation": 1.0, "partition": {"alpha": 0.5}},
            "engine": {"workers": 1},
            "deployment": {"wait": 60.0, **deployment},
        }
    )


@dataclass
class Federation:
    place: Path
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def server(self) -> Path:
        return self.place / "server"

    def prepare(self) -> None:
        """Keys for a server and two sites, and at each site the rows of one client."""
        keys.make_server_keys(self.server, ["localhost"], days=2)
        shards = build(experiment()).shards
        for k, shard in enumerate(shards):
            site = self.place / f"site-{k}"
            keys.make_site_keys(site)
            (self.server / "sites" / f"site-{k}.pub").write_bytes((site / "site.pub").read_bytes())
            (site / "ca.crt").write_bytes((self.server / "ca.crt").read_bytes())
            x = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy()
            y = shard.labels.numpy()
            np.savez(site / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])

    def start_site(self, k: int, e: Experiment, module: str = "") -> None:
        site = self.place / f"site-{k}"
        file = site / "experiment.toml"
        file.write_text(e.toml())
        data, server = f"npz:{site / 'data.npz'}", f"localhost:{self.port}"
        words = ["-m", module, str(site), str(file), server, data]
        if not module:
            words = ["-m", "fedadb", "deploy", "site", str(site), str(file)]
            words += ["--server", server, "--data", data]
        self.start(f"site-{k}", words)

    def start(self, name: str, words: list[str]) -> None:
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        with (self.place / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *words],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )

    def said(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text()

    def stop(self, name: str, number: int = signal.SIGTERM) -> int:
        process = self.running.pop(name)
        process.send_signal(signal.SIGCONT)  # if it was stopped
        process.send_signal(number)
        return process.wait(20)

    def stop_all(self) -> None:
        for name in list(self.running):
            self.stop(name, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)
    return found
