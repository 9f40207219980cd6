"""What a command leaves behind: its results, files and processes."""

import ctypes
import hashlib
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # from Linux's prctl.h
POLL = 0.005


def results(directory: Path) -> dict[str, str]:
    """Every file below the directory; with a digest if it must be the same in every run.

    Times differ between runs, and with them pages, figures and the environment: of these files,
    only the names count.
    """
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(directory))] = _digest(path)
    return found


def _digest(path: Path) -> str:
    if path.name == "rounds.jsonl":
        rounds = [json.loads(line) for line in path.read_text().splitlines()]
        timeless = [{k: v for k, v in r.items() if not k.endswith("seconds")} for r in rounds]
        return hashlib.sha256(json.dumps(timeless).encode()).hexdigest()
    if path.suffix in (".safetensors", ".toml") or path.parent.name == "searches":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def difference(expected: dict[str, str], found: dict[str, str]) -> str:
    """The files that differ, in a few words; empty if none does."""
    missing = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    changed = sorted(k for k in expected.keys() & found.keys() if expected[k] != found[k])
    parts = {"missing": missing, "left behind": extra, "different": changed}
    return "; ".join(f"{name}: {', '.join(files)}" for name, files in parts.items() if files)


def adopt_orphans() -> None:
    """Let this process become the parent of every descendant whose own parent has ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """The processes whose parent is this one, without those that have ended."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                state, parent = _state(int(entry))
                if parent == pid and state not in "ZX":
                    found.append(int(entry))
    return found


def descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    direct = children(pid)
    return direct + [one for child in direct for one in descendants(child)]


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has stopped the process."""
    with suppress(OSError):
        return _state(pid)[0] == "T"
    return False


def _state(pid: int) -> tuple[str, int]:
    """The state of a process as one letter, and its parent."""
    state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return state, int(parent)


def orphans(known: set[int], seconds: float) -> list[int]:
    """Processes that this one has adopted and that do not end within this time; ends them."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in children(os.getpid()) if pid not in known]) and (
        time.monotonic() < end
    ):
        time.sleep(POLL)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    _reap(known)
    return left


def _reap(known: set[int]) -> None:
    """Let ended orphans go. The processes that this one has started itself are left alone."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in known:
            with suppress(OSError, ChildProcessError):
                os.waitpid(int(entry), os.WNOHANG)
