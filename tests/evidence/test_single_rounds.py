"""Single rounds as rows, and the tables that are made of them."""

from itertools import islice
from pathlib import Path

import pytest

from evidence import single_rounds
from evidence.rows import read_rows, write_rows
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import rounds
from fedadb.report.recorded_runs import collect_runs


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three of FedAvg's 1 000 rounds, and two of FedADB's."""
    out = tmp_path_factory.mktemp("begun")
    for method, done in {"fedadb": 2, "fedavg": 3}.items():
        e = Experiment.read({
            "rounds": 1000, "algorithm": method, "model": "mlp",
            "local": {"epochs": 1, "lr": 0.05}, "engine": {"workers": 1},
            "federation": {"clients": 5, "participation": 1.0, "partition": {"alpha": 5.0}},
        })  # fmt: skip
        assert len(list(islice(rounds(e, out / "runs" / method), done))) == done
    runs = collect_runs([out / "runs"]).runs
    assert single_rounds.write_rounds(runs, out / "resnet18.csv") == 5
    return out


def test_every_round_is_a_row(results: Path) -> None:
    runs = {run.algorithm: run for run in collect_runs([results / "runs"]).runs}
    for row in read_rows(results / "resnet18.csv"):
        record = runs[row["algorithm"]].rounds[int(row["round"]) - 1]
        assert float(row["accuracy"]) == pytest.approx(100 * record["accuracy"], abs=1e-4)
        assert bool(row["tau"]) == (row["algorithm"] == "fedadb")


def test_what_a_method_has_not_reached_is_missing(results: Path) -> None:
    header, _, *lines = single_rounds.first_rounds(results).splitlines()
    assert header.startswith("| round | FedAvg | FedADB | τ |")
    assert [line.count("| - ") for line in lines] == [0, 0, 4]


def test_all_rounds_take_as_long_as_the_first_ones_did(results: Path, tmp_path: Path) -> None:
    rows = [
        {**row, "seconds": f"{100 + 100 * int(row['round'])}"}
        for row in read_rows(results / "resnet18.csv")
    ]
    write_rows(rows, tmp_path / "resnet18.csv", single_rounds.COLUMNS)
    assert single_rounds.duration(tmp_path).splitlines()[2:] == [
        "| FedAvg | 3 | 300 | 1,000 | 3.5 |",
        "| FedADB | 2 | 250 | 1,000 | 2.9 |",
    ]


def test_without_rows_there_is_no_table(tmp_path: Path) -> None:
    assert {made(tmp_path) for made in single_rounds.TABLES.values()} == {""}


def test_confidences_are_means_of_ten_rounds(results: Path, tmp_path: Path) -> None:
    (row,) = [
        one
        for one in read_rows(results / "resnet18.csv")
        if (one["algorithm"], one["round"]) == ("fedadb", "1")
    ]
    rows = [
        {**row, "round": str(t), "tau": f"{t / 100}", "anchor_confidence": f"{t / 50}"}
        for t in (*range(1, 11), 11, 12)
    ]
    write_rows(rows, tmp_path / "normalisation-rounds.csv", single_rounds.COLUMNS)
    assert single_rounds.confidences(tmp_path).splitlines()[2:] == [
        "| 1 to 10 | 0.055 | 0.110 |",
        "| 11 to 12 | 0.115 | 0.230 |",
    ]
