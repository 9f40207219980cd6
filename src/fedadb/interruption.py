"""SIGTERM and Ctrl-C: the process cleans up and says which command resumes."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

IMPORTS = "<frozen importlib._bootstrap>"  # the file of frames that import a module
AGAIN_SECONDS = 0.05  # until a signal that arrived in an import is looked at again

Handler = Callable[[int, FrameType | None], None]


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: a service manager or a batch system stops this process."""


def interrupt_handler() -> Handler:
    """A signal handler that treats a signal like Ctrl-C, after the import that it arrives in.

    A module whose import is cut short cannot be imported again in this process: numpy refuses it.
    Others take the interruption for a failed import, and go on. An import in which the handler is
    made does not count, because it may last as long as the program.
    """
    before = _count_imports(sys._getframe())

    def handle(number: int, frame: FrameType | None) -> None:
        if _count_imports(frame) > before:
            signal.signal(signal.SIGALRM, lambda _, later: handle(number, later))
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
            return
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    return handle


def _count_imports(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename == IMPORTS
        frame = frame.f_back
    return count


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise Terminated within the block, and Ctrl-C KeyboardInterrupt."""
    handler = interrupt_handler()
    previous = {signal.SIGTERM: signal.signal(signal.SIGTERM, handler)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it may be ignored
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        for number, handled in previous.items():
            signal.signal(number, handled)


def exit_code(error: KeyboardInterrupt) -> int:
    """The exit code of a process that was interrupted, as shells and services expect it."""
    return 143 if isinstance(error, Terminated) else 130


def this_command() -> str:
    """The command that is running, as it can be given to a shell."""
    return shlex.join(["fedadb", *sys.argv[1:]])
