import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedadb.core.errors import Fault
from fedadb.storage.records import append_record, read_records, truncate_records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rounds.jsonl"
    for t in range(1, 5):
        append_record(path, {"round": t, "accuracy": t / 7, "class_accuracy": [0.1, math.nan]})
    return path


def test_numbers_come_back_in_full_precision(path: Path) -> None:
    rounds = read_records(path)
    assert [r["accuracy"] for r in rounds] == [t / 7 for t in range(1, 5)]
    assert rounds[0]["class_accuracy"] == [0.1, None]


def test_a_half_written_line_does_not_count(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"round": 5, "accu')
    assert len(read_records(path)) == 4
    assert len(truncate_records(path, 4)) == 4
    fifth = {"round": 5, "class_accuracy": [0.2, 0.3]}
    append_record(path, fifth)
    assert read_records(path)[-1] == fifth


def test_keep_cuts_what_will_be_done_again(path: Path) -> None:
    assert [r["round"] for r in truncate_records(path, 2)] == [1, 2]
    assert [r["round"] for r in read_records(path)] == [1, 2]
    assert truncate_records(path, 0) == []
    assert path.read_text() == ""


def test_lines_that_are_missing_or_broken_are_noticed(path: Path) -> None:
    with pytest.raises(Fault, match="lacks rounds"):
        truncate_records(path, 6)
    for damage in (b'"round" 2', b'"Round": 2', b'"round": 3', b'"round": \xff'):
        intact = path.read_bytes()
        path.write_bytes(intact.replace(b'"round": 2', damage))
        with pytest.raises(Fault, match="damaged"):
            read_records(path)
        path.write_bytes(intact)


def test_no_file_means_no_rounds(tmp_path: Path) -> None:
    assert read_records(tmp_path / "none") == []
    assert truncate_records(tmp_path / "none", 0) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
GOOD: dict[str, Any] = {
    "accuracy": 0.5,
    "loss": 1.0,
    "class_accuracy": [0.5, None],
    "clients": [3],
    "lr": 0.1,
    "seconds": 1.0,
    "tau": 0.3,
}


@given(st.sampled_from([*GOOD, "lost", "domain_accuracy", "new"]), VALUES)
def test_forged_values_are_a_record_or_a_fault(key: str, value: Any) -> None:
    """Whatever a line says, what is returned can be shown: numbers are numbers, lists are lists."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rounds.jsonl"
        lines = [{"round": 1, **GOOD}, {"round": 2, **GOOD, key: value}]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        try:
            _, second = read_records(path)
        except Fault:
            return
        assert isinstance(second["accuracy"], (int, float))
        assert len(second["class_accuracy"]) == 2
        for name in second.keys() - {"class_accuracy", "domain_accuracy", "clients", "lost"}:
            assert second[name] is None or math.isfinite(second[name])


@pytest.mark.parametrize(
    "line",
    [
        '{"round": 1, "loss": NaN}',
        '{"round": 1, "loss": 1e400}',
        '{"round": 1, "accuracy": 2}',
        '{"round": 1, "accuracy": "0.5"}',
        '{"round": 1, "clients": [1.5]}',
        '{"round": 1, "lost": 0.5}',
        '{"round": 1, "tau": [0.5]}',
        "[" * 100_000,
        '{"round": 1' + "0" * 5000 + "}",
    ],
    ids=lambda line: line[:30],
)
def test_lines_that_are_not_records_are_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(Fault, match=r"rounds\.jsonl is damaged: line 1"):
        read_records(path)
