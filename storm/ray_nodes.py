"""Three Ray nodes in network namespaces of their own, one of which is lost during a run."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from storm.federation import GUARD, ROOT
from storm.outcome import Outcome
from storm.relay import Link, NoNamespaces, Relay
from storm.traces import results

NODES, ROUNDS, LOST = 3, 8, 3
DELAY = 0.01  # seconds one way
PORT = 6379
SAME = ("rounds.jsonl", "checkpoint.safetensors")  # the model's file names the backend
EXPERIMENT = {
    "rounds": ROUNDS,
    "algorithm": "feddyn",
    "model": "mlp",
    "local": {"epochs": 1},
    "federation": {"clients": 6, "participation": 1.0, "partition": {"alpha": 0.5}},
}


def storm_ray(outcome: Outcome, scratch: Path) -> None:
    """Train on the nodes, end all processes of one of them, and compare the end."""
    relay = Relay(NODES, Link(DELAY), outcome.seed)
    try:
        # Ray's sockets have names of a limited length, so its directory has a short one.
        with relay, tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as short:
            _train(outcome, relay, scratch, Path(short))
    except NoNamespaces as error:
        outcome.leave_out(f"Ray nodes: {error}")


def _start_node(relay: Relay, k: int, directory: Path) -> None:
    head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
    where = head if k == 1 else [f"--address={relay.address(1)}:{PORT}"]
    words = ["start", *where, f"--node-ip-address={relay.address(k)}", "--num-cpus=1"]
    words += ["--object-store-memory=100000000", "--disable-usage-stats"]
    words += [f"--temp-dir={directory}"] if k == 1 else []
    program = str(Path(sys.executable).with_name("ray"))
    subprocess.run([*relay.inside(k), program, *words], check=True, capture_output=True)


def _processes(relay: Relay, k: int) -> list[int]:
    words = ["ip", "netns", "pids", relay.namespace(k)]
    return [
        int(pid) for pid in subprocess.run(words, capture_output=True, text=True).stdout.split()
    ]


def _end_node(relay: Relay, k: int) -> None:
    for pid in _processes(relay, k):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _train(outcome: Outcome, relay: Relay, scratch: Path, short: Path) -> None:
    out, file = scratch / "ray", scratch / "experiment.toml"
    e = Experiment.read(EXPERIMENT)
    file.write_text(e.toml())
    engine = {"backend": "ray", "address": f"{relay.address(1)}:{PORT}", "workers": NODES}
    words = [sys.executable, "-m", "fedadb", "run", str(file), "--out", str(out)]
    words += [word for key, value in engine.items() for word in ("--set", f"engine.{key}={value}")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process, log = None, scratch / "ray.log"
    try:
        for k in relay.places:
            _start_node(relay, k, short)
        with log.open("wb") as file_of_log:
            process = subprocess.Popen(
                [*relay.inside(1), *words], env=environment, stdout=file_of_log, stderr=file_of_log
            )
        end = time.monotonic() + GUARD
        while process.poll() is None and time.monotonic() < end and not _has_rounds(out, 2):
            time.sleep(0.1)
        lost_in_time = process.poll() is None
        _end_node(relay, LOST)
        process.wait(GUARD)
    except (subprocess.SubprocessError, OSError) as error:
        detail = (getattr(error, "stderr", b"") or b"").decode(errors="replace")[-300:]
        outcome.violation(f"Ray: {error} {detail}")
        return
    finally:
        if process is not None and process.poll() is None:
            process.kill()
        for k in relay.places:
            _end_node(relay, k)
    said = log.read_text(errors="replace")[-400:]
    outcome.require(process.returncode == 0, f"Ray: exit code {process.returncode}: {said}")
    outcome.require(lost_in_time, "Ray: the run ended before the node was lost")
    outcome.count("Ray nodes lost", int(lost_in_time))
    run(e, scratch / "processes")
    expected, found = results(scratch / "processes"), results(out)
    for name in SAME:
        outcome.require(found.get(name) == expected[name], f"Ray: another {name}")
    outcome.count("ends compared with worker processes")


def _has_rounds(out: Path, rounds: int) -> bool:
    path = out / "rounds.jsonl"
    return path.exists() and path.read_bytes().count(b"\n") >= rounds
