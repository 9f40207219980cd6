"""A group of processes that are started, watched and stopped together."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.ports import is_open
from fedadb.engine.process import end_with_parent

MAX_RESTARTS = 3  # of a process that ends by itself
STOP_SECONDS = 10.0  # for a process to end after SIGTERM

# Flower sends usage data to its makers and looks for new versions, unless these are set.
FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; by default one
}


def flower_command(name: str) -> str:
    """The path of a Flower command, which is installed beside this Python."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise BadInput(f"{name} is not installed: pip install 'fedadb[federation]'")
    return str(path)


@dataclass
class ProcessGroup:
    """Running processes by name, each with a log file."""

    logs: Path
    environment: Mapping[str, str]
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _commands: dict[str, Sequence[str]] = field(default_factory=dict)
    _restarts: Counter[str] = field(default_factory=Counter)

    def start(self, name: str, command: Sequence[str]) -> None:
        self._commands[name] = command
        self.logs.mkdir(parents=True, exist_ok=True)
        # Flower starts its own commands by name.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **FLOWER_ENVIRONMENT, **self.environment, "PATH": path},
                start_new_session=True,  # Ctrl-C reaches this process only, which then stops them
                preexec_fn=partial(end_with_parent, signal.SIGTERM),
            )

    def keep_running(self) -> None:
        """Restart processes that have ended; a Fault if one ends again and again."""
        for name, process in list(self._running.items()):
            if process.poll() is None:
                continue
            self._restarts[name] += 1
            if self._restarts[name] > MAX_RESTARTS:
                raise Fault(
                    f"{name} ended with exit code {process.returncode}: {self.last_line(name)} "
                    f"(see {self._log(name)})"
                )
            self.start(name, self._commands[name])

    def wait_until_open(self, name: str, host: str, port: int, seconds: float) -> None:
        """Wait until the named process listens there."""
        end = time.monotonic() + seconds
        while not is_open(host, port):
            self.keep_running()
            if time.monotonic() > end:
                raise Fault(f"{name} did not start within {seconds:g} s; see {self._log(name)}")
            time.sleep(0.1)

    def last_line(self, name: str) -> str:
        """The last line of a process's log that is not empty."""
        lines = self._log(name).read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")

    def stop(self) -> None:
        """End all processes, the last one first, and kill those that do not end in time."""
        for process in reversed(self._running.values()):
            _signal_session(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            _signal_session(process, signal.SIGKILL)  # also ends its children
            process.wait()
        self._running.clear()

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


@contextlib.contextmanager
def process_group(logs: Path, environment: Mapping[str, str]) -> Iterator[ProcessGroup]:
    """A group that is stopped at the end of the block, also if SIGTERM ends this process."""
    group = ProcessGroup(logs, environment)
    previous = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield group
    finally:
        group.stop()
        signal.signal(signal.SIGTERM, previous)


def raise_interrupt(*_: object) -> None:
    """A signal handler that treats the signal like Ctrl-C."""
    raise KeyboardInterrupt


def _signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
