import math
from pathlib import Path

import pytest

from fedadb.core.errors import Fault
from fedadb.storage.records import append_record, read_records, truncate_records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rounds.jsonl"
    for t in range(1, 5):
        append_record(path, {"round": t, "accuracy": t / 3, "class_accuracy": [0.1, math.nan]})
    return path


def test_numbers_come_back_in_full_precision(path: Path) -> None:
    rounds = read_records(path)
    assert [r["accuracy"] for r in rounds] == [t / 3 for t in range(1, 5)]
    assert rounds[0]["class_accuracy"] == [0.1, None]


def test_a_half_written_line_does_not_count(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"round": 5, "accu')
    assert len(read_records(path)) == 4
    assert len(truncate_records(path, 4)) == 4
    append_record(path, {"round": 5})
    assert read_records(path)[-1] == {"round": 5}


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
