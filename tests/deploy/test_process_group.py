"""Processes that are started, restarted and stopped together, and their logs."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fedadb.core.errors import Fault
from fedadb.deploy import processes
from fedadb.deploy.processes import ProcessGroup
from tests.deploy.conftest import Clock
from tests.deploy.federation import wait_for

MB = 1 << 20


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def end_process(group: ProcessGroup, name: str) -> None:
    process = group._running[name]
    process.kill()
    process.wait()


def test_a_process_may_end_now_and_then(clock: Clock, tmp_path: Path) -> None:
    """A server that runs for months survives more deaths than one that starts badly."""
    group = ProcessGroup(tmp_path, {})
    group.start("sleeper", python("import time; print('asleep', flush=True); time.sleep(600)"))
    try:
        for _ in range(10):
            clock.now += 1800
            end_process(group, "sleeper")
            group.keep_running()
        clock.now += 3600
        for _ in range(3):
            end_process(group, "sleeper")
            group.keep_running()
        end_process(group, "sleeper")
        with pytest.raises(Fault, match="sleeper ended with exit code -9"):
            group.keep_running()
    finally:
        group.stop()


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def test_processes_that_do_not_end_share_the_time_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    group, names = ProcessGroup(tmp_path, {}), ("a", "b", "c")
    for name in names:
        group.start(name, python(STUBBORN))
    wait_for(lambda: all("ready" in (tmp_path / f"{name}.log").read_text() for name in names))
    running = list(group._running.values())
    waits: list[float] = []
    wait = subprocess.Popen.wait

    def noted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waits.append(timeout or 0.0)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", noted)
    group.stop()
    assert [process.poll() for process in running] == [-signal.SIGKILL] * 3
    assert sum(waits) <= 0.2


def test_a_process_that_is_not_to_be_restarted(tmp_path: Path) -> None:
    group = ProcessGroup(tmp_path, {})
    assert not group.has_ended("once")
    group.start("once", python("print('done')"), restart=False)
    wait_for(lambda: group.has_ended("once"))
    group.keep_running()
    assert group.has_ended("once")
    assert group.last_line("once") == "done"
    group.stop()


def has_written(group: ProcessGroup, part: str) -> bool:
    return group.last_line("writer") == f"{part} is written"


def test_logs_rotate(tmp_path: Path) -> None:
    """A log has a bounded size, while its process goes on writing to it."""
    go = tmp_path / "go"
    code = f"""
import pathlib, time
for part in "abc":
    for _ in range(11 << 10):
        print(part * 1023)
    print(part, "is written", flush=True)
    while not pathlib.Path({str(go)!r} + part).exists():
        time.sleep(0.05)
"""
    group = ProcessGroup(tmp_path / "logs", {})
    group.start("writer", python(code))
    try:
        for part in "abc":
            wait_for(partial(has_written, group, part))
            group.keep_running()
            assert has_written(group, part)
            sizes = [path.stat().st_size for path in (tmp_path / "logs").iterdir()]
            assert len(sizes) == 2
            assert sum(sizes) < 12 * MB
            Path(f"{go}{part}").touch()
    finally:
        group.stop()
