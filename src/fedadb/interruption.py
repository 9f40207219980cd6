"""SIGTERM, treated like Ctrl-C: the process cleans up and says which command resumes."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: a service manager or a batch system stops this process."""


def raise_interrupt(number: int, _: object) -> None:
    """A signal handler that treats the signal like Ctrl-C."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise Terminated within the block."""
    previous = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def exit_code(error: KeyboardInterrupt) -> int:
    """The exit code of a process that was interrupted, as shells and services expect it."""
    return 143 if isinstance(error, Terminated) else 130


def this_command() -> str:
    """The command that is running, as it can be given to a shell."""
    return shlex.join(["fedadb", *sys.argv[1:]])
