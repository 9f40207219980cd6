"""Moments at which a process is struck: at one of its own operations on files.

A process counts the operations on files of one directory, and strikes itself before the n-th one.
Such a moment is the same on every machine, and between two of them nothing on the disk changes
except for the content of an open file.
"""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

CHANGING = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate")
DISK_ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


class Moment(NamedTuple):
    """Before the n-th operation that a process does on files below a directory."""

    directory: Path
    n: int
    strike: Callable[[], None] = lambda: None
    writes_only: bool = False


def strike_at(moment: Moment, counter: "Synchronized[int]") -> None:
    """From now on, count this process's operations on files, and strike it at the moment.

    Processes that it forks inherit the counter, and are not struck.
    """
    own, prefix = os.getpid(), str(moment.directory)

    def operation(path: object) -> None:
        if os.getpid() != own or not str(path).startswith(prefix):
            return
        counter.value += 1
        if counter.value == moment.n:
            moment.strike()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            if not moment.writes_only or arguments[2] & (os.O_WRONLY | os.O_RDWR):
                operation(os.fsdecode(arguments[0]))
        elif event in CHANGING and isinstance(arguments[0], (str, bytes, os.PathLike)):
            operation(os.fsdecode(arguments[0]))

    sync = os.fsync

    def fsync(fd: Any) -> None:
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        operation(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    sys.addaudithook(hook)
    os.fsync = fsync  # Python has no audit event for it


def signal_itself(number: int) -> Callable[[], None]:
    """Strike: the process sends itself a signal."""
    return lambda: os.kill(os.getpid(), number)


def fail_write(code: int) -> Callable[[], None]:
    """Strike: the operation fails with this error, and the disk works again afterwards."""

    def strike() -> None:
        raise OSError(code, os.strerror(code))

    return strike
