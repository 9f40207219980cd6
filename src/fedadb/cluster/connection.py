"""Connects to a Ray cluster, or starts Ray on this machine, quietly and within a time limit."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedadb.core.errors import BadInput, Fault

try:
    import ray
except ModuleNotFoundError as error:
    raise BadInput(
        f"engine.backend = 'ray': {error.name} is not installed; pip install 'fedadb[ray]'"
    ) from error

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future default, to avoid a warning
    "RAY_worker_niceness": "0",  # otherwise actors would run at a lower priority
}
CONNECT_SECONDS = 20  # for a cluster to answer
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
# If nothing answers, Ray itself waits for minutes: a child process with a time limit tries first.
PROBE = f"""
import sys, ray
try:
    ray.init(sys.argv[1], **{QUIET})
except BaseException as error:
    sys.exit(" ".join(str(error).split()))
"""


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[None]:
    """Connect to the cluster at the address; None: start Ray on this machine, with `cpus` CPUs.

    The connection ends with the block. If the program is already connected, that connection is
    used and left open.
    """
    if ray.is_initialized():
        yield
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    local: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False}
    if address is not None:
        _require_reachable(address)
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", **({} if address else local), **QUIET)
    except Exception as error:  # Ray raises many kinds
        raise Fault(f"Ray could not be started: {last_line(str(error))}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray's own handler prints a stack and aborts
    try:
        yield
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    probe = [sys.executable, "-c", PROBE, address]
    try:
        subprocess.run(probe, check=True, capture_output=True, text=True, timeout=CONNECT_SECONDS)
        return
    except subprocess.TimeoutExpired:
        why = f"no Ray cluster answered within {CONNECT_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        why = last_line(error.stderr)
    raise BadInput(
        f"engine.address = {address!r}: cannot be reached: {why}; on a machine of the cluster the "
        "address is 'auto', elsewhere it looks like 'ray://head:10001'; without one, Ray starts on "
        "this machine"
    )


def cpus() -> int:
    """The number of CPUs of the whole cluster, used or not."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 1))


def last_line(text: str) -> str:
    """The last line of a message from Ray: it states the cause."""
    lines = text.strip().splitlines() or ["no reason given"]
    return lines[-1].strip()[:200].rstrip(".")
