"""Arranging runs: which rows and columns there are, their labels and their order."""

from pathlib import Path

from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.algorithms.fedopt import METHODS
from fedadb.datasets import DATASETS
from fedadb.report import labels
from fedadb.report.comparison import Comparison, arrange
from fedadb.report.notes import notes
from fedadb.report.recorded_runs import collect_runs
from tests.report.synthetic_runs import make_run

OWN = "tests.report.own_algorithms:FedOwn"
MORE = "tests.report.more_algorithms:FedOwn"


def compare(directory: Path, methods: list[str] | None = None) -> Comparison:
    return arrange(collect_runs([directory]).runs, methods)


def test_every_registered_algorithm_and_dataset_has_a_displayed_name() -> None:
    registered = [(name, cls.__name__) for name, cls in ALGORITHMS.items()]
    registered += zip(SERVER_METHODS, METHODS, strict=True)
    assert list(labels.METHODS.items()) == registered  # in the same order
    assert labels.DATASETS.keys() == set(DATASETS)


def test_different_settings_are_never_one_column(tmp_path: Path) -> None:
    for seed in (0, 1):
        for lr in (0.01, 0.1):
            for name in ("fedavg", "fedadb"):
                make_run(tmp_path, [0.5], seed=seed, algorithm=name, local={"lr": lr})
    comparison = compare(tmp_path)
    assert comparison.methods == ["FedAvg", "FedADB"]
    assert comparison.settings == ["digits, lr=0.01", "digits, lr=0.1"]
    assert all([run.seed for run in runs] == [0, 1] for runs in comparison.runs.values())


def test_a_server_optimiser_that_makes_a_method_is_no_setting_of_its_own(tmp_path: Path) -> None:
    for name in ("fedadam", "fedavg", "fedavgm"):
        make_run(tmp_path, [0.5], algorithm=name)
    make_run(tmp_path, [0.5], algorithm={"name": "fedadam", "lr": 0.1})
    comparison = compare(tmp_path)
    assert comparison.methods == ["FedAvg", "FedAvgM", "FedAdam, lr=0.01", "FedAdam, lr=0.1"]
    assert comparison.settings == ["digits"]


def test_settings_that_look_alike_are_written_in_full(tmp_path: Path) -> None:
    make_run(tmp_path, [0.2], local={"lr_decay": 0.904382})
    make_run(tmp_path, [0.8], local={"lr_decay": 0.99**10}, seed=1)
    assert compare(tmp_path).settings == [
        "digits, decay=0.904382",
        "digits, decay=0.9043820750088044",
    ]


def test_optimisers_are_named_with_whose_they_are(tmp_path: Path) -> None:
    make_run(tmp_path, [0.2])
    make_run(tmp_path, [0.3], local={"optimizer": "adam"})
    make_run(tmp_path, [0.4], server={"optimizer": {"name": "adam", "lr": 0.1}})
    make_run(tmp_path, [0.5], server={"optimizer": {"name": "adam", "lr": 0.2}})
    assert set(compare(tmp_path).settings) == {
        "digits, optimizer=adam",
        "digits, optimizer=sgd, server optimizer=none",
        "digits, optimizer=sgd, server optimizer=adam, server lr=0.1",
        "digits, optimizer=sgd, server optimizer=adam, server lr=0.2",
    }


def test_variants_of_a_method_have_rows_of_their_own(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm="fedadb")
    make_run(tmp_path, [0.5], algorithm={"name": "fedadb", "beta": 0.3})
    make_run(tmp_path, [0.5], algorithm="fedntd")
    comparison = compare(tmp_path)
    assert comparison.methods == ["FedNTD", "FedADB, beta=0.3", "FedADB, beta=none"]
    assert comparison.settings == ["digits"]


def test_scenarios_are_columns_by_name(tmp_path: Path) -> None:
    for name in ("cross-device", "cross-silo"):
        make_run(tmp_path, [0.5], dataset="organamnist", federation={"scenario": name})
    columns = sorted(compare(tmp_path).settings)
    assert columns == ["OrganAMNIST, cross-device", "OrganAMNIST, cross-silo"]


def test_settings_that_do_not_change_results_do_not_distinguish_runs(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], keep_broadcasts=[1])
    make_run(tmp_path, [0.5], seed=1, engine={"workers": 1})
    assert len(compare(tmp_path).runs) == 1


def test_rows_are_in_the_order_of_the_paper_or_in_the_given_one(tmp_path: Path) -> None:
    for name in ("fedadb", OWN, "fedavg", "fedntd"):
        make_run(tmp_path, [0.5], algorithm=name)
    assert compare(tmp_path).methods == ["FedAvg", "FedNTD", "FedADB", "FedOwn"]
    wanted = ["fedadb", OWN, "fedavg"]
    assert compare(tmp_path, wanted).methods == ["FedADB", "FedOwn", "FedAvg", "FedNTD"]


def test_ones_own_algorithm_is_displayed_by_its_class(tmp_path: Path) -> None:
    make_run(tmp_path / "one", [0.5], algorithm=OWN)
    assert compare(tmp_path / "one").methods == ["FedOwn"]
    for name in (OWN, MORE, "tests.report.own_algorithms:FedAvg", "fedavg"):
        make_run(tmp_path / "several", [0.5], algorithm=name)
    assert sorted(compare(tmp_path / "several").methods) == [
        "FedAvg",
        "FedAvg (tests.report.own_algorithms)",
        "FedOwn (tests.report.more_algorithms)",
        "FedOwn (tests.report.own_algorithms)",
    ]


def test_a_value_that_the_paper_has_on_one_dataset_is_no_variant(tmp_path: Path) -> None:
    """FedDecorr has λ = 0.05 on CIFAR-100 and 0.1 elsewhere: one row, and a note."""
    for dataset, lam in (("cifar100", 0.05), ("cifar10", 0.1)):
        make_run(tmp_path, [0.5], dataset=dataset, algorithm={"name": "feddecorr", "lam": lam})
    comparison = compare(tmp_path)
    assert comparison.methods == ["FedDecorr"]
    assert "FedDecorr on CIFAR-100: lam=0.05." in notes(comparison)
    make_run(tmp_path, [0.5], dataset="cifar100", algorithm={"name": "feddecorr", "lam": 0.1})
    assert compare(tmp_path).methods == ["FedDecorr, lam=0.05", "FedDecorr, lam=0.1"]
