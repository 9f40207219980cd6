"""Processes that belong together: started, watched, and stopped however this one ends."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedadb.core.errors import BadInput, Fault
from fedadb.engine.process import PR_SET_PDEATHSIG

RESTARTS = 3  # of a process that ended on its own
PATIENCE = 10.0  # seconds for a process to end when it is asked to

# Flower reports what is run to its makers and looks for new versions, unless told not to.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; else a second
}


def program(name: str) -> str:
    """A command of Flower, installed beside this Python."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise BadInput(f"{name} is not installed: pip install 'fedadb[federation]'")
    return str(path)


@dataclass
class Processes:
    """What runs, each with its log."""

    logs: Path
    environment: Mapping[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _words: dict[str, Sequence[str]] = field(default_factory=dict)
    _again: Counter[str] = field(default_factory=Counter)

    def start(self, name: str, words: Sequence[str]) -> None:
        self._words[name] = words
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **QUIET, **self.environment, "PATH": _path()},
                start_new_session=True,  # Ctrl-C is for this process, which then stops them
                preexec_fn=_end_with_parent,
            )

    def keep_alive(self) -> None:
        """Start again what has ended, a few times."""
        for name, process in list(self.running.items()):
            if process.poll() is None:
                continue
            self._again[name] += 1
            if self._again[name] <= RESTARTS:
                self.start(name, self._words[name])
            else:
                raise Fault(
                    f"{name} ended with exit code {process.returncode}: {self.last_words(name)} "
                    f"(more in {self.logs / f'{name}.log'})"
                )

    def last_words(self, name: str) -> str:
        """The last line of its log that says anything."""
        text = (self.logs / f"{name}.log").read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        """The last first; those that do not listen are killed."""
        for process in reversed(self.running.values()):
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            _signal(process, signal.SIGKILL)  # whatever is left of its group
            process.wait()
        self.running.clear()


@contextlib.contextmanager
def processes(logs: Path, environment: Mapping[str, str]) -> Iterator[Processes]:
    held = Processes(logs, environment)
    # Being told to end is an end like any other: what was started is stopped.
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield held
    finally:
        held.stop()
        signal.signal(signal.SIGTERM, before)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Between fork and exec: be told to end when the parent is gone, even if it was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _path() -> str:
    """Flower starts its own commands by name."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def require_free(host: str, port: int, what: str) -> None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{what} {host}:{port}: {reason}; choose another") from error


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_open(
    held: Processes, port: int, seconds: float, what: str, host: str = "127.0.0.1"
) -> None:
    end = time.monotonic() + seconds
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # all addresses: any of them
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return
        held.keep_alive()
        if time.monotonic() > end:
            raise Fault(f"{what} did not start within {seconds:g} s; its log is in {held.logs}")
        time.sleep(0.1)
