"""What lies on disk is read as it is, and what is wrong with it is told."""

import json
from pathlib import Path

import pytest

from fedadb.core.errors import BadInput, Fault
from fedadb.report.groups import arrange
from fedadb.report.runs import find, read, read_all
from tests.report.made import make_run


def test_runs_are_found_wherever_they_are_below(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "b", [0.1, 0.2])
    make_run(tmp_path / "c", [0.3], seed=1)
    runs, notes, _ = read_all([tmp_path, tmp_path / "c"])  # the second is there once all the same
    assert [run.accuracy for run in runs] == [[0.1, 0.2], [0.3]]
    assert notes == []


def test_a_half_written_line_is_not_counted_and_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.1, 0.2])
    with (run / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accu')
    runs, notes, _ = read_all([tmp_path])
    assert runs[0].accuracy == [0.1, 0.2]
    assert notes == [f"{run / 'rounds.jsonl'}: its last line is not whole"]


def test_a_run_without_rounds_is_left_out_and_told(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1])
    empty = make_run(tmp_path, [0.1], seed=1)
    (empty / "rounds.jsonl").unlink()
    runs, notes, _ = read_all([tmp_path])
    assert len(runs) == 1
    assert notes == [f"{empty}: left out, no round is done yet"]
    with pytest.raises(BadInput, match="no run there has done a round yet"):
        read_all([empty])


def test_places_without_runs_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere does not exist"):
        find([tmp_path / "nowhere"])
    with pytest.raises(BadInput, match="holds no run"):
        find([tmp_path])
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file is not a directory"):
        find([tmp_path / "file"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "rounds.jsonl",
            '{"round": 1, "accuracy": 0.5}\n',
            "round 1 has no 'loss': another version",
        ),
        ("rounds.jsonl", '{"round": 2}\n', "line 1 is not round 1"),
        ("rounds.jsonl", "nonsense\n", "is damaged"),
        ("experiment.toml", "dataset = 'digits'", "has no 'rounds': another version"),
        ("experiment.toml", "dataset = ", "experiment.toml is damaged"),
    ],
)
def test_damaged_files_are_told(tmp_path: Path, name: str, text: str, message: str) -> None:
    run = make_run(tmp_path, [0.1])
    (run / name).write_text(text)
    with pytest.raises(Fault, match=message):
        read(run)


def test_a_run_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5, 0.5, 0.5])
    bad = make_run(tmp_path, [0.5, 0.5, 0.5], seed=1)
    lines = (bad / "rounds.jsonl").read_text().splitlines(keepends=True)
    (bad / "rounds.jsonl").write_text("".join([lines[0], "{nonsense\n", lines[2]]))
    runs, _, damaged = read_all([tmp_path])
    assert len(runs) == 1
    assert f"{bad / 'rounds.jsonl'} is damaged: line 2" in damaged[0]
    with pytest.raises(Fault, match="line 2"):
        read_all([bad])


def test_settings_that_differ_are_never_one_column(tmp_path: Path) -> None:
    for seed in (0, 1):
        for lr in (0.01, 0.1):
            for name in ("fedavg", "fedadb"):
                make_run(tmp_path, [0.5], seed=seed, algorithm=name, local={"lr": lr})
    board = arrange(read_all([tmp_path])[0])
    assert board.rows == ["FedAvg", "FedADB"]
    assert board.columns == ["digits, lr=0.01", "digits, lr=0.1"]
    assert all([run.seed for run in runs] == [0, 1] for runs in board.at.values())


def test_settings_that_look_alike_are_told_in_full(tmp_path: Path) -> None:
    make_run(tmp_path, [0.2], local={"lr_decay": 0.904382})
    make_run(tmp_path, [0.8], local={"lr_decay": 0.99**10}, seed=1)
    board = arrange(read_all([tmp_path])[0])
    assert board.columns == ["digits, lr_decay=0.904382", "digits, lr_decay=0.9043820750088044"]


def test_variants_of_a_method_are_rows_of_their_own(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm="fedadb")
    make_run(tmp_path, [0.5], algorithm={"name": "fedadb", "beta": 0.3})
    make_run(tmp_path, [0.5], algorithm="fedntd")
    board = arrange(read_all([tmp_path])[0])
    assert board.rows == ["FedNTD", "FedADB, beta=0.3", "FedADB, beta=none"]
    assert board.columns == ["digits"]


def test_scenarios_have_their_name(tmp_path: Path) -> None:
    for name in ("cross-device", "cross-silo"):
        make_run(tmp_path, [0.5], dataset="organamnist", federation={"scenario": name})
    board = arrange(read_all([tmp_path])[0])
    assert sorted(board.columns) == ["OrganAMNIST, cross-device", "OrganAMNIST, cross-silo"]


def test_what_changes_nothing_is_no_setting(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm={"name": "fedadb", "keep_anchors": [1]})
    make_run(tmp_path, [0.5], seed=1, engine={"workers": 1})
    assert len(arrange(read_all([tmp_path])[0]).at) == 1


def test_an_experiment_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [0.5, 0.6])
    short = make_run(tmp_path / "b", [0.5, 0.6])
    lines = (short / "rounds.jsonl").read_text().splitlines(keepends=True)
    (short / "rounds.jsonl").write_text(lines[0])
    runs, notes, _ = read_all([tmp_path])
    assert [len(run.rounds) for run in runs] == [2]
    assert "are the same experiment: counted once" in notes[0]
    both = [read(directory) for directory in find([tmp_path])]
    with pytest.raises(
        BadInput, match=r"FedADB on digits with seed 0 is there twice: .*a.* and .*b"
    ):
        arrange(both)


def test_rounds_are_plain_json(tmp_path: Path) -> None:
    run = read(make_run(tmp_path, [0.5]))
    assert json.loads(json.dumps(run.rounds)) == run.rounds
    assert run.beside("no.json") == {}
