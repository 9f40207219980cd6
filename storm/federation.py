"""A real federation of commands: keys, the sites' data, a server and its sites as processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedadb.deploy import keys
from fedadb.experiment.build import build_data
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from storm.traces import results

ROOT = Path(__file__).parents[1]
GUARD = 1800.0  # seconds after which a federation counts as hung
SERVER = "server"


def experiment(sites: int, rounds: int, **deployment: Any) -> Experiment:
    """FedDyn, because its sites remember something, on the digits; every site in every round."""
    patient = {"wait": GUARD, "deadline": GUARD, "reconnect": GUARD, "min_replies": sites}
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": "feddyn",
            "model": "mlp",
            "local": {"epochs": 1},
            "federation": {"clients": sites, "participation": 1.0, "partition": {"alpha": 0.5}},
            "engine": {"workers": 1},
            "deployment": {**patient, **deployment},
        }
    )


@dataclass
class Federation:
    """The directories and processes of a server and its sites."""

    directory: Path
    experiment: Experiment
    port: int
    host: str = "localhost"
    prefix: Callable[[str], Sequence[str]] = lambda name: ()  # words before a command
    modules: Mapping[str, str] = field(default_factory=dict)  # in place of `fedadb`, by name
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The server and the sites."""
        return [SERVER, *(f"site-{k}" for k in range(self.experiment.federation.clients))]

    @property
    def out(self) -> Path:
        """The directory of the run."""
        return self.directory / "run"

    def prepare(self) -> None:
        """Make all keys, and give each site the rows of one client."""
        server, file = self.directory / SERVER, self.directory / "experiment.toml"
        keys.make_server_keys(server, [self.host], days=2)
        file.write_text(self.experiment.toml())
        for k, shard in enumerate(build_data(self.experiment).shards):
            site = self.directory / f"site-{k}"
            keys.make_site_keys(site)
            public = (site / keys.SITE_PUBLIC).read_bytes()
            (server / keys.SITES / f"site-{k}.pub").write_bytes(public)
            (site / keys.CA).write_bytes((server / keys.CA).read_bytes())
            x = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy()
            y = shard.labels.numpy()
            np.savez(site / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])

    def start(self, name: str) -> None:
        """Start the server or a site."""
        own, file = self.directory / name, self.directory / "experiment.toml"
        words = ["-m", self.modules.get(name, "fedadb"), "deploy"]
        words += ["server" if name == SERVER else "site", str(own), str(file)]
        address = f"{self.host}:{self.port}"
        if name == SERVER:
            words += ["--out", str(self.out), "--listen", address.replace("localhost", "127.0.0.1")]
        else:
            words += ["--server", address, "--data", f"npz:{own / 'data.npz'}"]
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*self.prefix(name), sys.executable, *words],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
                # A shell lets commands in the background ignore Ctrl-C, and so would these.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )

    def log(self, name: str) -> str:
        """What a participant has printed."""
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def rounds(self) -> int:
        """The number of rounds that the server has recorded."""
        path = self.out / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait(self, until: Callable[[], bool]) -> bool:
        """Wait until the condition holds or the server has ended; False if that takes too long."""
        end = time.monotonic() + GUARD
        while not until() and self.running[SERVER].poll() is None:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """End all processes."""
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def expected(self) -> dict[str, str]:
        """The results of the same federation, simulated in this process."""
        out = self.directory / "simulated"
        run(self.experiment, out)
        return results(out)
