"""A real federation on this machine: keys, the sites' data, and a process per participant."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedadb.deploy import keys
from fedadb.deploy.node import NODE_ID, deactivate
from fedadb.deploy.ports import free_port
from fedadb.deploy.server import RunningServer, start_server
from fedadb.experiment.build import build_data
from fedadb.experiment.config import Experiment
from fedadb.storage.files import write_atomically
from fedadb.storage.tensorfile import read_tensors
from tests.deploy.scripted_site import SCRIPT

ROOT = Path(__file__).parents[2]
GUARD = 300.0  # seconds after which a test that waits for an event fails; none comes close


def experiment(algorithm: Any = "fedavg", rounds: int = 3, **deployment: Any) -> Experiment:
    """Two sites, both in every round."""
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "local": {"epochs": 1},
            "federation": {"clients": 2, "participation": 1.0, "partition": {"alpha": 0.5}},
            "engine": {"workers": 1},
            "deployment": {"wait": GUARD, "deadline": GUARD, **deployment},
        }
    )


@dataclass
class RealFederation:
    """The directories and processes of a server and two sites."""

    directory: Path
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _server: RunningServer | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def server_directory(self) -> Path:
        return self.directory / "server"

    def site(self, k: int) -> Path:
        return self.directory / f"site-{k}"

    def prepare(self) -> None:
        """Make the keys of a server and two sites, and give each site the rows of one client."""
        keys.make_server_keys(self.server_directory, ["localhost"], days=2)
        for k, shard in enumerate(build_data(experiment()).shards):
            site = self.site(k)
            keys.make_site_keys(site)
            (self.server_directory / "sites" / f"site-{k}.pub").write_bytes(
                (site / "site.pub").read_bytes()
            )
            (site / "ca.crt").write_bytes((self.server_directory / "ca.crt").read_bytes())
            x = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy()
            y = shard.labels.numpy()
            np.savez(site / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])

    def start_site(self, k: int, e: Experiment) -> None:
        site = self.site(k)
        file = site / "experiment.toml"
        file.write_text(e.toml())
        words = ["-m", "tests.deploy.scripted_site", "deploy", "site", str(site), str(file)]
        words += ["--server", f"localhost:{self.port}", "--data", f"npz:{site / 'data.npz'}"]
        self.start(f"site-{k}", words)

    def start(self, name: str, words: list[str]) -> None:
        """Start a Python process with a log of its own."""
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        with self._log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *words],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )

    def script(self, k: int, actions: Mapping[int, str]) -> None:
        """Let a site misbehave in some rounds, as in `scripted_site`."""
        write_atomically(self.site(k) / SCRIPT, json.dumps(dict(actions)).encode())

    def log(self, name: str) -> str:
        path = self._log(name)
        return path.read_text() if path.exists() else ""

    def wait_for_log(self, name: str, text: str, after: str) -> None:
        """Wait until the process has logged the text, after the given earlier state of its log."""
        wait_for(lambda: text in self.log(name).removeprefix(after))

    def deactivate_site(self, k: int) -> None:
        """Tell the SuperLink that a site which was killed is offline, as its restart does."""
        site = self.site(k)
        private = load_ssh_private_key((site / keys.SITE_KEY).read_bytes(), None)
        node = int((site / NODE_ID).read_text())
        deactivate(f"localhost:{self.port}", site / keys.CA, private, node)

    def running_server(self) -> RunningServer:
        """The server, which is started if it does not run."""
        if self._server is None:
            self._server = self._stack.enter_context(
                start_server(self.server_directory, "127.0.0.1", self.port)
            )
        return self._server

    def stop_server(self) -> None:
        self._server = None
        self._stack.close()

    def stop(self, name: str, number: int = signal.SIGTERM) -> int:
        """End a process, and return its exit code."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(GUARD)

    def stop_all(self) -> None:
        self.stop_server()
        for name in list(self.running):
            self.stop(name, signal.SIGKILL)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until the condition holds."""
    end = time.monotonic() + GUARD
    while not (result := condition()):
        assert time.monotonic() < end, "the event did not happen"
        time.sleep(0.1)
    return result


def require_equal_weights(one: Path, other: Path) -> None:
    """The final weights of two runs are bit-identical."""
    expected, actual = (read_tensors(out / "model.safetensors", "")[0] for out in (one, other))
    assert expected.keys() == actual.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
