"""A chain of entries: what breaks it is named, and a kill in the middle of a write does not."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedadb.core.errors import Fault
from fedadb.storage.hash_chain import START, append_entry, read_chain


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    for t in range(1, 5):
        append_entry(path, "round", round=t, lost={"north": "did not reply within 2 s"})
    return path


def test_a_chain_is_read_as_it_was_written(log: Path) -> None:
    chain = read_chain(log)
    assert [entry["round"] for entry in chain.entries] == [1, 2, 3, 4]
    assert [entry["entry"] for entry in chain.entries] == [1, 2, 3, 4]
    assert chain.entries[0]["previous"] == START
    assert (chain.head, chain.torn) == (chain.entries[-1]["hash"], 0)
    assert append_entry(log, "end") == read_chain(log).head
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def changed(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace("2 s", "9 s"), *lines[2:]]


def forged(lines: list[str]) -> list[str]:
    """With a hash that fits the new content."""
    path = Path("forged.jsonl")
    entry = json.loads(lines[1])
    for key in ("entry", "time", "event", "previous", "hash"):
        del entry[key]
    append_entry(path, "round", **{**entry, "round": 7})
    return [lines[0], path.read_text(), *lines[2:]]


def hidden(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace('"round": 2', '"round": 9, "round": 2'), *lines[2:]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed, "line 2 was changed after it was written"),
        (hidden, "line 2 was changed after it was written"),
        (forged, "line 2 does not follow line 1"),
        (lambda lines: lines[:1] + lines[2:], "line 2 does not follow line 1"),
        (lambda lines: lines[1:], "line 1 is not the first entry of a log"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 is not the first entry of a log"),
        (lambda lines: [lines[0], *lines], "line 2 does not follow line 1"),
        (lambda lines: [*lines, "{}\n"], "line 5 is not an entry"),
        (lambda lines: [*lines, "[1]\n"], "line 5 is not an entry"),
        (lambda lines: [*lines, "\x00\xff\n"], "line 5 is not an entry"),
        (lambda lines: [*lines, "[" * 100_000 + "\n"], "line 5 is not an entry"),
    ],
)
def test_a_broken_chain_is_named(
    change: Callable[[list[str]], list[str]],
    reason: str,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(log.parent)
    log.write_text("".join(change(log.read_text().splitlines(keepends=True))))
    with pytest.raises(Fault, match=reason):
        read_chain(log)


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_line_that_was_not_written_completely_is_replaced(cut: int, log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole[:-cut])
    torn = len(whole.splitlines(keepends=True)[-1]) - cut
    assert read_chain(log).torn == torn
    append_entry(log, "round", round=5)
    chain = read_chain(log)
    assert [entry["event"] for entry in chain.entries] == ["round"] * 3 + ["repaired", "round"]
    assert (chain.entries[3]["bytes"], chain.torn) == (torn, 0)


@pytest.mark.parametrize("complete", [True, False])
def test_a_line_of_any_length_is_continued(complete: bool, log: Path) -> None:
    append_entry(log, "round", lost="x" * 100_000)
    if not complete:
        os.truncate(log, log.stat().st_size - 1)
    append_entry(log, "end")
    events = [entry["event"] for entry in read_chain(log).entries]
    assert events == ["round"] * 4 + (["round"] if complete else ["repaired"]) + ["end"]


def test_the_first_line_may_be_the_one_that_was_not_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"entry": 1')
    append_entry(path, "start")
    assert [entry["event"] for entry in read_chain(path).entries] == ["repaired", "start"]


def test_a_log_whose_last_line_is_no_entry_is_not_continued(log: Path) -> None:
    with log.open("a") as file:
        file.write("something else\n")
    with pytest.raises(Fault, match=r"its last line is not an entry; move it away"):
        append_entry(log, "round")


def test_several_processes_append_to_one_chain(log: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fedadb.storage.hash_chain import append_entry\n"
        "for t in range(20): append_entry(Path(sys.argv[1]), 'round', round=t)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(log)], env=dict(os.environ))
        for _ in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(read_chain(log).entries) == 4 + 2 * 20


def test_an_entry_that_others_made_has_an_event_and_a_time(log: Path) -> None:
    """Their hashes fit, so only their form can be wrong."""
    for change in ({"event": 1}, {"time": "\x1b[2J"}, {"time": 3}):
        entry = {"entry": 1, "time": "2026-11-18", "event": "x", **change, "previous": START}
        digest = hashlib.sha256(json.dumps(entry).encode() + b"\n").hexdigest()
        log.write_text(json.dumps({**entry, "hash": digest}) + "\n")
        with pytest.raises(Fault, match="line 1 is not an entry"):
            read_chain(log)
