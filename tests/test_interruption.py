"""SIGTERM and Ctrl-C, at whatever moment they arrive."""

import importlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedadb.interruption import Terminated, exit_code, interrupted_by_sigterm

GUARD = 60.0  # seconds after which an interruption counts as lost


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Python's own handler, also if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_an_interruption_waits_for_the_end_of_an_import(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is half imported would be broken for the rest of the process."""
    module = f"interrupted_by_{name.lower()}"
    lines = f"import signal\nsignal.raise_signal(signal.{name})\nwhole = True\n"
    (tmp_path / f"{module}.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    found = []

    def import_and_wait() -> None:
        found.append(importlib.import_module(module))
        time.sleep(GUARD)

    with pytest.raises(KeyboardInterrupt) as interruption, interrupted_by_sigterm():
        import_and_wait()
    assert found[0].whole
    assert exit_code(interruption.value) == code


def test_an_interruption_outside_of_imports_is_immediate() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(Terminated), interrupted_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_ignored_ctrl_c_stays_ignored() -> None:
    """A shell lets a command in the background ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupted_by_sigterm():
        signal.raise_signal(signal.SIGINT)
