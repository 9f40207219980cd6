"""The settings beside a method's row, and what the top of the page says of a run."""

from pathlib import Path

import pytest

from fedadb.report.comparison import Comparison, arrange
from fedadb.report.method_settings import row_settings
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.tables import summary_table
from tests.report.synthetic_runs import add_to_records, keep_rounds, make_run


def comparison(runs: Path) -> Comparison:
    return arrange(collect_runs([runs]).runs)


def test_rows_are_those_of_the_summary(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm={"name": "fedprox", "mu": 0.5}, local={"lr": 0.02})
    make_run(tmp_path, [0.6], algorithm="fedadam", local={"lr": 0.02})
    compared = comparison(tmp_path)
    methods = [row[1].text for row in summary_table(compared).rows]
    found = dict(zip(methods, row_settings(compared), strict=True))
    assert found["FedProx"]["text"] == "lr=0.02, mu=0.5"
    assert found["FedAdam"]["text"].startswith("lr=0.02, ")
    lines = found["FedProx"]["more"].splitlines()
    assert "algorithm.mu = 0.5" in lines
    assert "local.epochs = 5" in lines
    assert not any(line.startswith(("engine", "seed", "dataset")) for line in lines)


def test_a_run_has_its_time_pace_and_bytes(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5] * 30)
    add_to_records(run, seconds=2.0, bytes_down=1000, bytes_up=500)
    keep_rounds(run, 20)
    (shown,) = page_data(comparison(tmp_path), "")["runs"]
    assert (shown["done"], shown["total"]) == (20, 30)
    assert shown["seconds"] == pytest.approx(40)
    assert shown["pace"] == pytest.approx(2)
    assert shown["bytes"] == 20 * 2 * 1500  # two clients per round


def test_runs_of_earlier_versions_have_no_bytes(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5, 0.6])
    (shown,) = page_data(comparison(tmp_path), "")["runs"]
    assert shown["bytes"] == 0
