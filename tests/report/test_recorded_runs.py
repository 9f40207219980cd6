"""Reading run directories, and the errors for those that are damaged or empty."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from fedadb.core.errors import BadInput, Fault
from fedadb.report import paper
from fedadb.report.comparison import arrange
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs, find_runs, read_recorded_run
from tests.report.synthetic_runs import keep_rounds, make_run


def test_runs_are_collected_from_all_directories_below(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "b", [0.1, 0.2])
    make_run(tmp_path / "c", [0.3], seed=1)
    runs, warnings, _ = collect_runs([tmp_path, tmp_path / "c"])  # c is below both
    assert [run.accuracy for run in runs] == [[0.1, 0.2], [0.3]]
    assert warnings == []


def test_an_incomplete_last_line_is_ignored_with_a_warning(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.1, 0.2])
    with (run / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accu')
    runs, warnings, _ = collect_runs([tmp_path])
    assert runs[0].accuracy == [0.1, 0.2]
    assert warnings == [f"{run / 'rounds.jsonl'}: its last line is incomplete"]


def test_a_run_without_rounds_is_skipped_with_a_warning(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1])
    empty = make_run(tmp_path, [0.1], seed=1)
    (empty / "rounds.jsonl").unlink()
    runs, warnings, _ = collect_runs([tmp_path])
    assert len(runs) == 1
    assert warnings == [f"{empty}: skipped, it has no finished round yet"]
    with pytest.raises(BadInput, match="no run there has finished a round yet"):
        collect_runs([empty])


def test_directories_without_runs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere does not exist"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(BadInput, match="contains no run"):
        find_runs([tmp_path])
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file is not a directory"):
        find_runs([tmp_path / "file"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "rounds.jsonl",
            '{"round": 1, "accuracy": 0.5}\n',
            "round 1 has no 'loss': another version",
        ),
        ("rounds.jsonl", '{"round": 2}\n', "line 1: it is not round 1"),
        ("rounds.jsonl", "nonsense\n", "is damaged"),
        ("experiment.toml", "dataset = 'digits'", "has no 'rounds': another version"),
        ("experiment.toml", "dataset = ", "experiment.toml is damaged"),
    ],
)
def test_damaged_files_are_errors(tmp_path: Path, name: str, text: str, message: str) -> None:
    run = make_run(tmp_path, [0.1])
    (run / name).write_text(text)
    with pytest.raises(Fault, match=message):
        read_recorded_run(run)


def test_a_damaged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5, 0.5, 0.5])
    bad = make_run(tmp_path, [0.5, 0.5, 0.5], seed=1)
    lines = (bad / "rounds.jsonl").read_text().splitlines(keepends=True)
    (bad / "rounds.jsonl").write_text("".join([lines[0], "{nonsense\n", lines[2]]))
    runs, _, errors = collect_runs([tmp_path])
    assert len(runs) == 1
    assert f"{bad / 'rounds.jsonl'} is damaged: line 2" in errors[0]
    with pytest.raises(Fault, match="line 2"):
        collect_runs([bad])


def test_the_same_experiment_in_two_directories_counts_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [0.5, 0.6])
    keep_rounds(make_run(tmp_path / "b", [0.5, 0.6]), 1)
    runs, warnings, _ = collect_runs([tmp_path])
    assert [len(run.rounds) for run in runs] == [2]
    assert "are the same experiment: counted once" in warnings[0]
    both = [read_recorded_run(directory) for directory in find_runs([tmp_path])]
    with pytest.raises(
        BadInput, match=r"FedADB on digits with seed 0 is given twice: .*a.* and .*b"
    ):
        arrange(both)


def test_two_versions_of_ones_own_code_are_two_experiments(tmp_path: Path) -> None:
    for version in ("0123456789", "abcdefghij"):
        run = make_run(tmp_path / version, [0.5], algorithm="tests.report.own_algorithms:FedOwn")
        code = {"tests.report.own_algorithms:FedOwn": version}
        (run / "environment.json").write_text(json.dumps({"own_code": code}))
    comparison = arrange(collect_runs([tmp_path]).runs)
    assert comparison.methods == ["FedOwn, code=01234567", "FedOwn, code=abcdefgh"]


ACCURACY = [0.1, 0.2, 0.3, 0.4]


def make_earlier_run(parent: Path, **changed: str) -> Path:
    """A run as the version before optimisers, schedules and filters wrote it."""
    text = Path(__file__).with_name("earlier_version.toml").read_text()
    for key, value in changed.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    run = make_run(parent, ACCURACY, algorithm="fedgela", seed=tomllib.loads(text)["seed"])
    (run / "experiment.toml").write_text(text)
    return run


def make_todays_run(parent: Path) -> Path:
    """The same experiment, as this version writes it."""
    return make_run(
        parent,
        ACCURACY,
        algorithm="fedgela",
        federation={"clients": 4, "participation": 0.5},
        local={"epochs": 1, "lr": 0.05},
        engine={"device": "cpu"},
    )


def test_a_run_of_an_earlier_version_has_todays_settings(tmp_path: Path) -> None:
    earlier = read_recorded_run(make_earlier_run(tmp_path / "earlier"))
    today = read_recorded_run(make_todays_run(tmp_path / "today"))
    assert earlier.settings == today.settings
    runs, warnings, _ = collect_runs([tmp_path])
    assert len(runs) == 1
    assert "are the same experiment: counted once" in warnings[0]


def test_runs_of_two_versions_are_two_seeds_of_one_method(tmp_path: Path) -> None:
    make_earlier_run(tmp_path / "earlier", seed="1")
    make_todays_run(tmp_path / "today")
    assert arrange(collect_runs([tmp_path]).runs).methods == ["FedGELA"]


@pytest.mark.parametrize(
    ("key", "value", "name", "expected"),
    [
        ("lr_decay", "0.9", "local.schedule.decay", 0.9),
        ("momentum", "0.5", "local.optimizer.momentum", 0.5),
        ("clip", "5.0", "local.clip", 5.0),
        ("norm_bound", "5.0", "deployment.norm_bound", 5.0),
    ],
)
def test_what_an_earlier_run_changed_is_still_a_difference(
    key: str, value: str, name: str, expected: float, tmp_path: Path
) -> None:
    defaults = read_recorded_run(make_earlier_run(tmp_path / "defaults")).settings
    changed = read_recorded_run(make_earlier_run(tmp_path / "changed", **{key: value})).settings
    assert changed == {**defaults, name: expected}


def test_a_run_of_an_earlier_version_may_have_the_papers_settings(tmp_path: Path) -> None:
    paper_s = {
        "dataset": '"organamnist"', "rounds": "300", "clients": "100", "participation": "0.05",
        "epochs": "5", "batch_size": "128", "lr": "0.01", "device": '"auto"',
    }  # fmt: skip
    run = make_earlier_run(tmp_path / "paper", **paper_s)
    assert paper.changed_settings(read_recorded_run(run)) == {}
    other = make_earlier_run(tmp_path / "other", **paper_s, lr_decay="0.9")
    assert paper.changed_settings(read_recorded_run(other)) == {"local.schedule.decay": 0.9}


def test_rounds_are_plain_json(tmp_path: Path) -> None:
    run = read_recorded_run(make_run(tmp_path, [0.5]))
    assert json.loads(json.dumps(run.rounds)) == run.rounds
    (run.directory / "partition.json").unlink()
    assert run.partition == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environment.json", "[]"),
        ("environment.json", '{"own_code": [1]}'),
        ("environment.json", "[" * 100_000),
        ("partition.json", '{"counts": [["many"]]}'),
        ("partition.json", '{"classes": 3}'),
        ("partition.json", '{"counts": [[NaN]]}'),
        ("experiment.toml", "x = " + "[" * 100_000),
        ("experiment.toml", 'dataset = 3\nrounds = "many"'),
    ],
    ids=lambda text: text[:24],
)
def test_forged_files_beside_the_records_are_faults(name: str, text: str, tmp_path: Path) -> None:
    directory = make_run(tmp_path, [0.5, 0.6])
    (directory / name).write_text(text)
    with pytest.raises(Fault, match=rf"{name} (is damaged|has no)"):
        page_data(arrange([read_recorded_run(directory)]), "title")
