"""How a process that trains is set up: one thread, memory that is kept, no life after its parent's.

What the system does not offer is left out: everything here is about speed and tidiness.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
PR_SET_PDEATHSIG = 1


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_memory() -> None:
    """Let glibc hold on to freed memory: training takes the same again at every step."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(M_MMAP_MAX, 0)
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
            libc.mallopt(M_TOP_PAD, 64 << 20)


def follow_parent(parent: int) -> None:
    """End when the parent does, however it ends; leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before this one asked
        os._exit(1)
