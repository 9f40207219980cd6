"""Sweeps on the page: their order, lines, settings and points."""

from pathlib import Path
from typing import Any

import pytest

from fedadb.report.comparison import arrange
from fedadb.report.labels import FEDADB_RED
from fedadb.report.page_sweeps import sweep_data
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.sweeps import is_wide
from tests.report.synthetic_runs import keep_rounds, make_run


def sweeps_of(directory: Path) -> list[dict[str, Any]]:
    return sweep_data(arrange(collect_runs([directory]).runs))


def test_points_are_means_over_seeds(tmp_path: Path) -> None:
    for lr, top in ((0.1, 0.5), (0.01, 0.25)):
        for seed in (0, 1):
            make_run(tmp_path, [0.0, top + 0.1 * seed], seed=seed, local={"lr": lr})
    (sweep,) = sweeps_of(tmp_path)
    assert sweep["label"] == "learning rate (local.lr)"
    assert sweep["settings"] == ["digits"]
    assert sweep["wide"]
    (line,) = sweep["lines"]
    assert (line["name"], line["setting"], line["colour"]) == ("FedADB", "digits", FEDADB_RED)
    low, high = line["points"]
    assert low["value"] == 0.01
    assert low["best"] == low["last"] == [15, 2.5]  # both rounds of 0, 25 % and 0, 35 %
    assert low["seeds"] == high["seeds"] == 2


def test_only_values_that_the_paper_states_are_marked(tmp_path: Path) -> None:
    """It states the number of epochs, for its own datasets; it states no learning rate."""
    for dataset in ("organamnist", "digits"):
        for epochs, lr in ((5, 0.01), (1, 0.01), (5, 0.1)):
            make_run(tmp_path, [0.5], dataset=dataset, local={"epochs": epochs, "lr": lr})
    marked = {
        (sweep["key"], line["setting"], point["value"])
        for sweep in sweeps_of(tmp_path)
        for line in sweep["lines"]
        for point in line["points"]
        if point["paper"]
    }
    assert marked == {("local.epochs", "OrganAMNIST", 5)}


def test_an_unfinished_point_is_marked(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5] * 3, local={"lr": 0.1})
    keep_rounds(make_run(tmp_path, [0.5] * 3, local={"lr": 0.2}), 2)
    (sweep,) = sweeps_of(tmp_path)
    done = [(point["finished"], point["done"]) for point in sweep["lines"][0]["points"]]
    assert done == [(True, 3), (False, 2)]
    assert not sweep["wide"]


def test_learning_rates_come_first_and_settings_are_apart(tmp_path: Path) -> None:
    """The lines of a setting are named after what distinguishes them within it."""
    for clients in (10, 30):
        federation = {"clients": clients, "participation": 0.4}
        for lr in (0.1, 0.2):
            for name in ("fedadb", "fedavg"):
                make_run(tmp_path, [0.5], algorithm=name, federation=federation, local={"lr": lr})
    rates, clients_sweep = sweeps_of(tmp_path)
    assert rates["key"] == "local.lr"
    assert rates["settings"] == ["digits, K=10", "digits, K=30"]
    assert [(line["name"], line["setting"]) for line in rates["lines"]] == [
        ("FedAvg", "digits, K=10"),
        ("FedAvg", "digits, K=30"),
        ("FedADB", "digits, K=10"),
        ("FedADB", "digits, K=30"),
    ]
    assert clients_sweep["key"] == "federation.clients"
    assert clients_sweep["settings"] == ["digits, lr=0.1", "digits, lr=0.2"]


def test_variants_of_a_method_are_lines_of_one_colour(tmp_path: Path) -> None:
    for beta in (0.25, 0.75):
        for lr in (0.1, 0.2):
            table = {"name": "fedadb", "beta": beta}
            make_run(tmp_path, [0.5], algorithm=table, local={"lr": lr})
    rates, _ = sweeps_of(tmp_path)
    lines = {line["name"]: line["colour"] for line in rates["lines"]}
    assert lines == {"FedADB, beta=0.25": FEDADB_RED, "FedADB, beta=0.75": FEDADB_RED}


@pytest.mark.parametrize(
    ("values", "wide"), [([0.005, 0.05], True), ([1, 5], False), ([0, 100], False)]
)
def test_an_axis_is_logarithmic_over_a_power_of_ten(values: list[float], wide: bool) -> None:
    assert is_wide(values) == wide
