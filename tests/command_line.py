"""`fedadb` in the tests' own process."""

import io
from contextlib import redirect_stderr, redirect_stdout
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
