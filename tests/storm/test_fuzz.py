"""A short version of `python -m storm fuzz`, and that it finds what is wrong."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from storm.fuzz import Hang, finding, input_of
from storm.mutations import shrunk
from storm.readers import READERS
from storm.readers.reader import Reader

INPUTS = 30  # of each reader


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    def on_alarm(number: int, _: object) -> None:
        raise Hang

    previous = signal.signal(signal.SIGPROF, on_alarm)
    yield
    signal.signal(signal.SIGPROF, previous)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_changed_inputs_are_read_or_refused(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    for number in range(INPUTS):
        data = input_of(name, reader, 0, number)
        assert finding(reader, data, tmp_path / "d") == "", data


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_some_input_of_every_reader_is_valid(name: str, tmp_path: Path) -> None:
    """A reader that refuses everything would test nothing."""
    reader, directory = READERS[name], tmp_path / "d"
    for data in reader.seeds:
        directory.mkdir(exist_ok=True)
        try:
            reader.read(data, directory)
        except Exception:
            continue
        return
    pytest.fail("it refuses all")


def test_an_error_is_found_and_its_input_shortened(tmp_path: Path) -> None:
    def read(data: bytes, directory: Path) -> None:
        if b"x" in data:
            raise KeyError("x")

    reader = Reader(read, [b"abc"])
    assert finding(reader, b"abc", tmp_path / "d") == ""
    assert finding(reader, b"abcxdef", tmp_path / "d").startswith("KeyError in ")
    small = shrunk(b"abcxdef", lambda data: finding(reader, data, tmp_path / "d") != "")
    assert small == b"x"
