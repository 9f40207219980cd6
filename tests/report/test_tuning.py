"""The table of what searches tried."""

from pathlib import Path

from fedadb.report.comparison import Comparison, arrange
from fedadb.report.formats import markdown
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.tuning import tuning_table
from fedadb.storage.searches import Trial, read_search, write_search
from tests.report.synthetic_runs import make_run, make_search


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


def test_every_trial_is_a_row_and_the_chosen_one_is_the_best(tmp_path: Path) -> None:
    make_search(tmp_path, {0.01: 0.5, 0.03: 0.8, 0.1: None}, algorithm="fedadb")
    make_search(tmp_path, {0.01: 0.6}, algorithm="fedavg")
    table = tuning_table(compare(tmp_path))
    assert table is not None
    assert table.header == ["setting", "method", "local.lr", "validation", "rounds", "state"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["digits", "FedAvg", "0.01", "60.00", "5", "chosen"],
        ["digits", "FedADB", "0.01", "50.00", "5", "finished"],
        ["digits", "FedADB", "0.03", "80.00", "5", "chosen"],
        ["digits", "FedADB", "0.1", "--", "1", "stopped"],
    ]
    assert [row[3].best for row in table.rows] == [True, False, True, False]
    assert not any("deviation" in note for note in table.notes)  # no number of it is a mean
    assert "| digits | FedADB | **0.03** | **80.00** | 5 | chosen |" in markdown(table)


def test_each_searched_setting_is_a_column(tmp_path: Path) -> None:
    make_search(tmp_path, {0.01: 0.5}, algorithm="fedavg")
    path = make_search(tmp_path, {0.01: 0.5}, algorithm="fedprox")
    search = read_search(path)
    values = {"local.lr": 0.01, "algorithm.mu": search.experiment["algorithm"]["mu"]}
    trials = [search.trials[0]._replace(values=values), Trial("running", {"algorithm.mu": 1})]
    space = {**search.space, "algorithm.mu": [0.01, 1]}
    write_search(path, search._replace(space=space, trials=trials, budget=2))
    table = tuning_table(compare(tmp_path))
    assert table is not None
    assert table.header[2:4] == ["local.lr", "algorithm.mu"]
    assert [[cell.text for cell in row[1:5]] for row in table.rows] == [
        ["FedAvg", "0.01", "", "50.00"],
        ["FedProx", "0.01", "0.01", "50.00"],
        ["FedProx", "", "1", "--"],
    ]


def test_a_search_without_a_winner_has_its_setting_too(tmp_path: Path) -> None:
    for alpha in (0.1, 1.0):
        federation = {"partition": {"name": "dirichlet", "alpha": alpha}}
        make_run(tmp_path, [0.5] * 5, algorithm="fedavg", validation=0.1, federation=federation)
    make_search(tmp_path, {0.01: None}, algorithm="fedadb", federation=federation)
    table = tuning_table(compare(tmp_path))
    assert table is not None
    assert [cell.text for cell in table.rows[0][:2]] == ["digits, α=1", "FedADB"]


def test_no_search_no_table(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5])
    assert tuning_table(compare(tmp_path)) is None
