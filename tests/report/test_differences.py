"""Differences to the reference method, by hand."""

from pathlib import Path

from fedadb.report.cells import Table
from fedadb.report.comparison import arrange
from fedadb.report.differences import difference_table
from fedadb.report.recorded_runs import collect_runs
from tests.report.synthetic_runs import add_validation, keep_rounds, make_run


def table_of(directory: Path) -> Table | None:
    return difference_table(arrange(collect_runs([directory]).runs))


def texts(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


def test_differences_to_fedadb_by_hand(tmp_path: Path) -> None:
    """Seeds 0 and 1: −10 and −20 points, mean −15, s = 7.0711, 12.7062 · s / √2 = 63.5.

    Seed 2 has no partner. Of twelve equal rounds, the last ten have the same mean.
    """
    for seed, a in enumerate((0.6, 0.7, 0.9)):
        make_run(tmp_path, [a] * 12, algorithm="fedadb", seed=seed)
    for seed in (0, 1):
        make_run(tmp_path, [0.5] * 12, algorithm="fedavg", seed=seed)
    make_run(tmp_path, [0.65] * 12, algorithm="fedntd", seed=2)
    table = table_of(tmp_path)
    assert table is not None
    assert table.title.startswith("Difference to FedADB in points")
    assert table.header == ["setting", "method", "best 5", "last 10", "seeds"]
    interval = "−15.0 [−78.5, +48.5]"
    assert texts(table) == [
        ["digits", "FedAvg", interval, interval, "2"],
        ["digits", "FedNTD", "−25.0", "−25.0", "1"],
    ]


def test_each_number_has_a_difference_of_its_own(tmp_path: Path) -> None:
    """Best five .52 and .6; the picked round .2 and .6; the last ten .36 and .6."""
    one = make_run(tmp_path, [0.2] * 7 + [0.6] * 4 + [0.2], algorithm="fedavg")
    add_validation(one, [0.9] + [0.1] * 11)
    other = make_run(tmp_path, [0.6] * 12, algorithm="fedadb")
    add_validation(other, [0.5] * 12)
    table = table_of(tmp_path)
    assert table is not None
    assert table.header[2:] == ["best 5", "picked", "last 10", "seeds"]
    assert texts(table) == [["digits", "FedAvg", "−8.0", "−40.0", "−24.0", "1"]]


def test_the_reference_is_the_first_row_if_fedadb_is_not_one_row(tmp_path: Path) -> None:
    for beta in (0.1, 0.3):
        make_run(tmp_path, [0.8] * 5, algorithm={"name": "fedadb", "beta": beta})
    make_run(tmp_path, [0.5] * 5, algorithm="fedavg")
    table = table_of(tmp_path)
    assert table is not None
    assert table.title.startswith("Difference to FedAvg")
    assert [row[1].text for row in table.rows] == ["FedADB, beta=0.1", "FedADB, beta=0.3"]
    assert table.rows[0][2].text == "+30.0"


def test_only_finished_runs_are_compared(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.8] * 5, algorithm="fedadb")
    assert table_of(tmp_path) is None  # one method
    make_run(tmp_path, [0.5] * 5, algorithm="fedavg")
    assert table_of(tmp_path) is not None
    for name in ("fedadb", "fedavg"):
        make_run(tmp_path, [0.5] * 5, algorithm=name, seed=1)
    assert texts(table_of(tmp_path))[0][-1] == "2"
    keep_rounds(run, 3)
    assert texts(table_of(tmp_path)) == [["digits", "FedAvg", "+0.0", "+0.0", "1"]]
