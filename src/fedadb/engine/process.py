"""Process-wide settings for training: threads, memory allocation, and the end of child processes.

Where the operating system lacks one of these features, the function does nothing.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h
LARGE = 32 << 20  # bytes of a block; glibc accepts no more as its threshold
PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread within the block.

    Sums then have one order, so results are bit-identical on any number of cores. For small models
    it is also faster.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory: every training step allocates the same sizes again.

    Large blocks are returned to the system. In the kept memory, small objects that stay would end
    up between them, and a process that trains many clients of a large model would grow.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(M_MMAP_THRESHOLD, LARGE)
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
            libc.mallopt(M_TOP_PAD, 64 << 20)


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask Linux to send this process the signal as soon as its parent has ended, however it ends.

    The setting survives `exec`, so it also works between fork and exec of another program.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
