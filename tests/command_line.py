"""`fedadb` in the tests' own process, and in forks of it."""

import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from fedadb import cli


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def invoke(*words: object) -> Ended:
    """Run `fedadb` with these words."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch("sys.argv", ["fedadb", *map(str, words)]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    return Ended(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def start(
    *words: object, errors: Path | None = None, before: Callable[[], None] = lambda: None
) -> BaseProcess:
    """Start `fedadb` in a fork of this process, which has loaded torch already.

    Args:
        words: The words of the command.
        errors: The file for what it prints to stderr; None: nowhere.
        before: Is called in the fork first.
    """
    process = multiprocessing.get_context("fork").Process(
        target=_main, args=(words, errors, before)
    )
    process.start()
    return process


def _main(words: tuple[object, ...], errors: Path | None, before: Callable[[], None]) -> None:
    # A process that was started in the background ignores Ctrl+C, and so do its forks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stream, path in ((1, None), (2, errors)):
        os.dup2(os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT), stream)
    sys.argv = ["fedadb", *map(str, words)]
    before()
    with open(1, "w", closefd=False) as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
        cli.main()
