"""A group of processes that are started, watched and stopped together."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.ports import is_open
from fedadb.engine.process import end_with_parent
from fedadb.interruption import interrupted_by_sigterm

MAX_RESTARTS = 3  # of a process that ends by itself, within RESTART_SECONDS
RESTART_SECONDS = 3600.0
MAX_LOG = 10 << 20  # bytes of a log; one older part of it is kept
STOP_SECONDS = 3.0  # for a process, or a whole group, to end after SIGTERM

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
    _restarts: dict[str, list[float]] = field(default_factory=dict)  # the times

    def start(self, name: str, command: Sequence[str], restart: bool = True) -> None:
        """Start a process; `restart` says whether `keep_running` starts it again if it ends."""
        if restart:
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
        """Restart processes that have ended, and rotate logs that have become large.

        Raises a Fault if a process ends again and again.
        """
        for name, command in self._commands.items():
            process = self._running[name]
            if process.poll() is None:
                continue
            now = time.monotonic()
            recent = [t for t in self._restarts.get(name, []) if now - t < RESTART_SECONDS]
            if len(recent) >= MAX_RESTARTS:
                raise Fault(
                    f"{name} ended with exit code {process.returncode}: {self.last_line(name)} "
                    f"(see {self._log(name)})"
                )
            self._restarts[name] = [*recent, now]
            self.start(name, command)
        for name in self._running:
            self._rotate_log(name)

    def has_ended(self, name: str) -> bool:
        """Whether the named process was started and has ended."""
        return name in self._running and self._running[name].poll() is not None

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
        parts = [path for path in (self._older_log(name), self._log(name)) if path.exists()]
        lines = "\n".join(path.read_text(errors="replace") for path in parts).split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")

    def stop(self) -> None:
        """End all processes, the last one first; kill what does not end in time."""
        end = time.monotonic() + STOP_SECONDS
        for name in reversed(list(self._running)):
            self._stop_until(end, name)

    def stop_process(self, name: str) -> None:
        """End the named process, if it was started; kill it if it does not end in time."""
        self._stop_until(time.monotonic() + STOP_SECONDS, name)

    def _stop_until(self, end: float, name: str) -> None:
        self._commands.pop(name, None)
        if process := self._running.pop(name, None):
            _signal_session(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            _signal_session(process, signal.SIGKILL)  # also ends its children
            process.wait()

    def _rotate_log(self, name: str) -> None:
        """Move a large log's content to another file.

        The process keeps its log open for appending, so the file is emptied, not replaced.
        """
        log = self._log(name)
        if log.stat().st_size > MAX_LOG:
            shutil.copyfile(log, self._older_log(name))
            os.truncate(log, 0)

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _older_log(self, name: str) -> Path:
        return self.logs / f"{name}.1.log"


@contextlib.contextmanager
def process_group(logs: Path, environment: Mapping[str, str]) -> Iterator[ProcessGroup]:
    """A group that is stopped at the end of the block, also if SIGTERM ends this process."""
    group = ProcessGroup(logs, environment)
    with interrupted_by_sigterm():
        try:
            yield group
        finally:
            group.stop()


def _signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
