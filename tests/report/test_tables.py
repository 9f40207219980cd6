"""The tables by hand."""

from pathlib import Path

import pytest

from fedadb.report.cells import Cell, Score, Table
from fedadb.report.comparison import Comparison, arrange
from fedadb.report.convergence import convergence_table
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.sweeps import find_sweeps
from fedadb.report.tables import BOLD, accuracy_table, domain_table, summary_table
from tests.report.synthetic_runs import (
    add_validation,
    keep_rounds,
    make_run,
    read_records,
    write_records,
)


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_accuracy_by_hand(tmp_path: Path) -> None:
    """Best five of seed 0: .2 to .6, mean .4; of seed 1: .5. Mean .45, deviation .05."""
    local = {"lr": 0.05}
    make_run(tmp_path, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], algorithm="fedavg", local=local)
    make_run(tmp_path, [0.5] * 6, algorithm="fedavg", seed=1, local=local)
    make_run(tmp_path, [0.7] * 6, algorithm="fedadb", local=local)
    table = accuracy_table(compare(tmp_path))
    assert table.header == ["", "digits"]
    assert texts(table) == [["FedAvg", "45.00 ± 5.00"], ["FedADB", "70.00"]]
    assert table.notes == [
        "Mean ± population standard deviation over 1 to 2 seeds.",
        "No method was tuned: all ran at lr=0.05.",
        BOLD,
    ]


def bold(directory: Path) -> list[str]:
    return [row[0].text for row in accuracy_table(compare(directory)).rows if row[1].best]


def test_only_a_distinguishable_best_is_bold(tmp_path: Path) -> None:
    """FedADB minus FedNTD: .1, .2; 12.7 · .0707 / √2 = .64 includes 0. A third .15: ± .12."""
    for seed, a in enumerate((0.6, 0.7)):
        make_run(tmp_path, [a] * 5, algorithm="fedadb", seed=seed)
        make_run(tmp_path, [0.5] * 5, algorithm="fedntd", seed=seed)
        make_run(tmp_path, [0.1] * 5, algorithm="fedavg", seed=seed)
    assert bold(tmp_path) == []
    make_run(tmp_path, [0.5] * 5, algorithm="fedntd", seed=2)
    make_run(tmp_path, [0.65] * 5, algorithm="fedadb", seed=2)
    assert bold(tmp_path) == ["FedADB"]
    keep_rounds(make_run(tmp_path, [0.65] * 5, algorithm="fedadb", seed=3), 2)
    assert "FedADB" not in bold(tmp_path)  # it is unfinished


def test_nothing_is_bold_with_one_seed_or_one_method(tmp_path: Path) -> None:
    make_run(tmp_path, [0.9] * 5, algorithm="fedadb")
    make_run(tmp_path, [0.1] * 5, algorithm="fedavg")
    make_run(tmp_path, [0.1] * 5, algorithm="fedavg", seed=1)  # one common seed
    assert bold(tmp_path) == []
    for seed in range(3):
        make_run(tmp_path / "one", [0.9] * 5, algorithm="fedadb", seed=seed)
    assert bold(tmp_path / "one") == []


def test_cells_hold_numbers(tmp_path: Path) -> None:
    make_run(tmp_path, [1 / 3] * 5, algorithm="fedavg")
    cell = accuracy_table(compare(tmp_path)).rows[0][1]
    assert cell == Cell(Score(100 * (1 / 3)))


def test_an_average_needs_every_column(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm="fedavg")
    make_run(tmp_path, [0.7], algorithm="fedavg", dataset="svhn")
    make_run(tmp_path, [0.9], algorithm="fedadb")
    table = accuracy_table(compare(tmp_path))
    assert table.header == ["", "SVHN", "digits", "average"]
    assert texts(table) == [["FedAvg", "70.00", "50.00", "60.00"], ["FedADB", "--", "90.00", "--"]]


def test_the_paper_s_value_stands_beside_runs_with_the_paper_s_settings(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, [0.2 + 0.001 * seed] * 300, algorithm="fedavg", dataset="organamnist",
                 seed=seed)  # fmt: skip
    cell = accuracy_table(compare(tmp_path)).rows[0][1]
    assert (cell.text, cell.best, str(cell.paper)) == ("20.10 ± 0.08", False, "26.68 ± 2.78")
    make_run(tmp_path / "short", [0.2] * 30, algorithm="fedavg", dataset="organamnist")
    short = accuracy_table(compare(tmp_path / "short"))
    assert short.rows[0][1].paper is None
    assert "OrganAMNIST: 30 rounds, where the paper has 300." in short.notes


def test_the_summary_shows_how_many_rounds_are_done(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.2, 0.8, 0.6], [[0.3, 0.1], [1.0, 0.6], [0.4, 0.8]])
    table = summary_table(compare(tmp_path))
    assert texts(table)[0] == [
        "digits",
        "FedADB",
        "53.33",
        "60.00",
        "53.33",
        "20.00",
        "3",
        "1",
        "0.50",
        "--",
    ]
    keep_rounds(run, 1)
    table = summary_table(compare(tmp_path))
    assert texts(table)[0][5:7] == ["--", "1/3"]
    assert "1 of the runs are not finished." in table.notes


def test_the_summary_has_the_round_that_validation_picks(tmp_path: Path) -> None:
    add_validation(make_run(tmp_path, [0.2, 0.8, 0.6], algorithm="fedavg"), [0.1, 0.3, 0.5])
    table = summary_table(compare(tmp_path))
    assert table.header[2:6] == ["best 5", "picked", "last", "last 10"]
    assert texts(table)[0][2:6] == ["53.33", "60.00", "60.00", "53.33"]
    assert "picked" in table.title
    make_run(tmp_path, [0.2, 0.8, 0.6], algorithm="fedadb")
    assert [row[3].text for row in summary_table(compare(tmp_path)).rows] == ["60.00", "--"]


def test_forgetting_is_missing_if_a_seed_measured_no_class_twice(tmp_path: Path) -> None:
    """In a federation whose sites test, the only site with a class may be disconnected."""
    make_run(tmp_path, [0.5, 0.5], [[0.7, None], [0.5, 0.5]])
    assert texts(summary_table(compare(tmp_path)))[0][5] == "20.00"
    make_run(tmp_path, [0.5, 0.5], [[0.5, None], [None, 0.5]], seed=1)
    assert texts(summary_table(compare(tmp_path)))[0][5] == "--"


def test_a_setting_that_varies_alone_is_a_sweep(tmp_path: Path) -> None:
    for name in ("fedavg", "fedadb"):
        for lr in (0.01, 0.1):
            make_run(tmp_path, [lr], algorithm=name, local={"lr": lr})
    make_run(tmp_path, [0.5], algorithm={"name": "fedadb", "steps": 10}, local={"lr": 0.01})
    sweeps = find_sweeps(compare(tmp_path))
    assert sweeps.keys() == {"local.lr", "algorithm.steps"}
    assert {name: sorted(line) for name, line in sweeps["local.lr"].items()} == {
        "FedAvg": [0.01, 0.1],
        "FedADB": [0.01, 0.1],
    }
    assert {name: sorted(line) for name, line in sweeps["algorithm.steps"].items()} == {
        "FedADB": [10, 50]
    }


def test_several_datasets_are_not_a_sweep(tmp_path: Path) -> None:
    """Another dataset also changes the number of rounds and clients."""
    make_run(tmp_path, [0.5] * 3, dataset="svhn")
    make_run(tmp_path, [0.5] * 2, dataset="digits")
    assert find_sweeps(compare(tmp_path)) == {}


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_are_enough_for_every_table(tmp_path: Path, rounds: int) -> None:
    make_run(tmp_path, [0.5] * rounds)
    for make_table in (accuracy_table, summary_table, convergence_table):
        table = make_table(compare(tmp_path))
        assert all(len(row) == len(table.header) for row in table.rows)


def test_averages_are_per_scenario_and_only_over_datasets(tmp_path: Path) -> None:
    for dataset, accuracy in (("svhn", 0.2), ("organamnist", 0.4)):
        for scenario, more in (("cross-device", 0.0), ("cross-silo", 0.2)):
            federation = {"scenario": scenario}
            make_run(tmp_path / "a", [accuracy + more], dataset=dataset, federation=federation)
    table = accuracy_table(compare(tmp_path / "a"))
    assert table.header[-2:] == ["average, cross-device", "average, cross-silo"]
    assert texts(table)[0][-2:] == ["30.00", "50.00"]
    for lr in (0.1, 0.2):
        make_run(tmp_path / "b", [0.5], local={"lr": lr})
    assert "average" not in accuracy_table(compare(tmp_path / "b")).header


def test_the_accuracy_on_each_domain_in_the_best_rounds(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.1, 0.5, 0.5, 0.5, 0.5, 0.5])
    records = read_records(run)
    for record in records:
        record["domain_accuracy"] = [record["accuracy"] - 0.1, record["accuracy"] + 0.1]
    write_records(run, records)
    table = domain_table(compare(tmp_path))
    assert table is not None
    assert table.header == ["setting", "method", "0", "1", "mean"]  # the domains have no names
    assert texts(table) == [["digits", "FedADB", "40.00", "60.00", "50.00"]]


def test_a_server_without_data_names_those_of_its_sites(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5, 0.6], deployment={"classes": ["a", "b"], "evaluate": "sites"})
    assert accuracy_table(compare(tmp_path)).header == ["", "data of the sites"]
