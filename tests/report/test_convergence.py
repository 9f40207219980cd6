"""Rounds to target accuracies, by hand."""

from pathlib import Path

import pytest

from fedadb.report.cells import Table
from fedadb.report.comparison import arrange
from fedadb.report.convergence import convergence_table
from fedadb.report.recorded_runs import collect_runs
from tests.report.synthetic_runs import keep_rounds, make_run


def table(directory: Path) -> Table:
    return convergence_table(arrange(collect_runs([directory]).runs))


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_rounds_to_targets_by_hand(tmp_path: Path) -> None:
    """Best .9: targets 40 (40.5), 58 (58.5) and 76 % (76.5). FedADB is there at once."""
    make_run(tmp_path, [0.9] * 4, classes=10, algorithm="fedadb")
    smoothed = [0.5, 0.9, 0.9, 0.9]  # .5, .58, .644, .6952
    make_run(tmp_path, smoothed, classes=10, algorithm="fedavg")
    made = table(tmp_path)
    assert made.header == ["setting", "target", "FedAvg", "FedADB"]
    assert texts(made) == [
        ["digits", "40 %", "1 (1.0×)", "1 (1.0×)"],
        ["digits", "58 %", "2 (2.0×)", "1 (1.0×)"],
        ["digits", "76 %", "--", "1 (1.0×)"],
        ["mean ratio", "", "1.5×", "1.0×"],
        ["median ratio", "", "1.5×", "1.0×"],
        ["targets not reached", "", "1", "0"],
    ]


def test_ratios_compare_methods_in_the_same_setting(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5, 0.9, 0.9], classes=10, algorithm="fedavg")
    make_run(tmp_path, [0.9] * 3, classes=10, algorithm="fedadb", dataset="svhn")
    assert texts(table(tmp_path))[-3] == ["mean ratio", "", "--", "1.0×"]


def test_an_unfinished_run_has_not_missed_a_target(tmp_path: Path) -> None:
    make_run(tmp_path, [0.9] * 4, classes=10, algorithm="fedadb")
    keep_rounds(make_run(tmp_path, [0.1] * 4, classes=10, algorithm="fedavg"), 2)
    rows = texts(table(tmp_path))
    assert [row[2] for row in rows[:3]] == ["…"] * 3
    assert rows[-1] == ["targets not reached", "", "0", "0"]


def test_targets_that_guessing_reaches_are_left_out(tmp_path: Path) -> None:
    """Best .2 of ten classes: 9 and 13 % lie around chance, 17 % above it."""
    make_run(tmp_path, [0.1, 0.2], classes=10)
    made = table(tmp_path)
    assert [row[1] for row in texts(made)[:2]] == ["13 %", "17 %"]
    assert "digits: targets that are not above chance accuracy (10 %) are left out." in made.notes


def test_a_run_that_never_exceeds_chance_has_no_targets(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1, 0.1], classes=10)
    assert table(tmp_path).rows == []


@pytest.mark.parametrize("best", [0.3, 0.9])
def test_the_paper_s_rounds_stand_beside_the_target_they_belong_to(
    tmp_path: Path, best: float
) -> None:
    """Also if lower targets are left out: of a best of 30 %, 14 % with five classes."""
    make_run(tmp_path, [best] * 1000, classes=5, algorithm="fedavg", dataset="svhn")
    highest = table(tmp_path).rows[-1]
    assert str(highest[2].paper) == "478 to 80 %"
