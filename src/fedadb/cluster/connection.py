"""Reaching a Ray cluster, or starting one on this machine, quietly and without endless waiting."""

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
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what it warns will be so one day
    "RAY_worker_niceness": "0",  # of actors started here: else whatever runs beside them goes first
}
REACH_SECONDS = 20  # for a cluster to answer
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
# Ray itself waits for many minutes where nothing answers, so a process that can be ended asks.
PROBE = f"""
import sys, ray
try:
    ray.init(sys.argv[1], **{QUIET})
except BaseException as error:
    sys.exit(" ".join(str(error).split()))
"""


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[None]:
    """The cluster at that address; none: Ray on this machine, with so many CPUs, until the end.

    Where a program is connected already, that is what is used, and left as it is.
    """
    if ray.is_initialized():
        yield
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    here: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False}
    if address is not None:
        _require_reachable(address)
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", **({} if address else here), **QUIET)
    except Exception as error:  # of which Ray has many kinds
        raise Fault(f"Ray could not be started: {last_line(str(error))}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray's own prints a stack and aborts
    try:
        yield
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    probe = [sys.executable, "-c", PROBE, address]
    try:
        subprocess.run(probe, check=True, capture_output=True, text=True, timeout=REACH_SECONDS)
        return
    except subprocess.TimeoutExpired:
        why = f"nothing answered as Ray does within {REACH_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        why = last_line(error.stderr)
    raise BadInput(
        f"engine.address = {address!r}: cannot be reached: {why}; it is 'auto' on a machine of the "
        "cluster and such as 'ray://head:10001' elsewhere; leave it out for Ray on this machine"
    )


def cpus() -> int:
    """Of the whole cluster, taken or not."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 1))


def last_line(text: str) -> str:
    """Where Ray says why, after all that led to it."""
    lines = text.strip().splitlines() or ["it does not say why"]
    return lines[-1].strip()[:200].rstrip(".")
