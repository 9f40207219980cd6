"""Searches beside runs: trials are no results, and tuned methods share a column."""

from pathlib import Path

import numpy as np
import pytest

from fedadb.core.errors import Fault
from fedadb.report.comparison import Comparison, arrange
from fedadb.report.notes import notes
from fedadb.report.plots import draw_curves
from fedadb.report.recorded_runs import collect_runs, read_recorded_run
from fedadb.report.sweeps import draw_sweep, find_sweeps
from fedadb.storage.searches import Search, Trial, read_search, write_search
from tests.report.synthetic_runs import make_run, make_search


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


def rates(comparison: Comparison) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Seed and learning rate of the runs in each cell."""
    return {
        cell: [(run.seed, run.settings["local.lr"]) for run in runs]
        for cell, runs in comparison.runs.items()
    }


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """FedAvg is best at 0.01 and FedADB at 0.03; both have two seeds there. One trial stopped."""
    make_search(tmp_path, {0.01: 0.6, 0.03: 0.5, 0.1: None}, algorithm="fedavg")
    make_search(tmp_path, {0.01: 0.7, 0.03: 0.8, 0.1: 0.6}, algorithm="fedadb")
    for name, lr in (("fedavg", 0.01), ("fedadb", 0.03)):
        make_run(tmp_path, [0.75] * 5, algorithm=name, validation=0.1, local={"lr": lr}, seed=1)
    return tmp_path


def test_trials_that_were_not_chosen_are_no_results(tuned: Path) -> None:
    comparison = compare(tuned)
    assert comparison.methods == ["FedAvg", "FedADB"]
    assert rates(comparison) == {
        ("FedAvg", "digits"): [(0, 0.01), (1, 0.01)],
        ("FedADB", "digits"): [(0, 0.03), (1, 0.03)],
    }
    tried = [(run.algorithm, run.settings["local.lr"]) for run in comparison.trials]
    assert sorted(tried) == [("fedadb", 0.01), ("fedadb", 0.1), ("fedavg", 0.03), ("fedavg", 0.1)]
    assert [search.algorithm for search in comparison.searches] == ["fedadb", "fedavg"]


def test_relative_paths_name_the_same_trials(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison names its own runs as the user named the directory, and finds the others."""
    monkeypatch.chdir(tuned)
    first, *others = sorted(tuned.glob("digits-*"))
    comparison = arrange([read_recorded_run(path) for path in (Path(first.name), *others)])
    assert rates(comparison) == rates(compare(tuned))
    assert len(comparison.searches) == 2


def test_curves_have_one_line_per_tuned_method(tuned: Path) -> None:
    (axes,) = draw_curves(compare(tuned)).axes
    assert [line.get_label() for line in axes.lines] == ["FedAvg", "FedADB"]


def test_sweeps_have_the_trials_with_the_seed_that_all_of_them_have(tuned: Path) -> None:
    lines = find_sweeps(compare(tuned))["local.lr"]
    shown = {
        label: {value: [run.seed for run in runs] for value, runs in sorted(line.items())}
        for label, line in lines.items()
    }
    assert shown == {name: {0.01: [0], 0.03: [0], 0.1: [0]} for name in ("FedAvg", "FedADB")}
    (axes,) = draw_sweep("local.lr", lines, {}).axes
    hollow = [line for line in axes.lines if line.get_color() == "white"]
    assert [np.asarray(line.get_xdata()).tolist() for line in hollow] == [[0.1]]
    assert axes.get_xlabel() == "local.lr (hollow: stopped early, or not finished)"


def test_a_trial_that_is_all_there_is_of_its_method_is_a_result(tuned: Path) -> None:
    """A comparison at given rates, in the directory of a search that preferred others."""
    runs = [run for run in collect_runs([tuned]).runs if run.settings["local.lr"] == 0.01]
    assert rates(arrange(runs)) == {
        ("FedAvg", "digits"): [(0, 0.01), (1, 0.01)],
        ("FedADB", "digits"): [(0, 0.01)],
    }


def test_a_trial_with_the_settings_of_an_ordinary_run_is_a_result(tuned: Path) -> None:
    make_run(tuned, [0.7] * 5, algorithm="fedadb", validation=0.1, local={"lr": 0.01}, seed=1)
    assert rates(compare(tuned)) == {
        ("FedAvg", "digits, lr=0.01"): [(0, 0.01), (1, 0.01)],
        ("FedADB", "digits, lr=0.01"): [(0, 0.01), (1, 0.01)],
        ("FedADB", "digits, lr=0.03"): [(0, 0.03), (1, 0.03)],
    }


def test_trials_of_a_search_without_a_winner_are_shown_if_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    path = make_search(tmp_path, {0.01: None, 0.03: None}, algorithm="fedadb")
    write_search(path, read_search(path)._replace(complete=False))
    comparison = compare(tmp_path)
    assert comparison.settings == ["digits, lr=0.01", "digits, lr=0.03"]
    assert "The search for settings is not finished: FedADB." in notes(comparison)
    make_run(tmp_path, [0.5] * 5, algorithm="fedavg", validation=0.1)
    comparison = compare(tmp_path)
    assert (comparison.methods, len(comparison.trials)) == (["FedAvg"], 2)


def test_a_damaged_search_is_named(tuned: Path) -> None:
    next((tuned / "searches").glob("*.json")).write_text("{}")
    with pytest.raises(Fault, match=r"searches/.*\.json is damaged"):
        compare(tuned)


def test_methods_with_a_rate_each_share_a_column_and_a_note_has_the_rates(tmp_path: Path) -> None:
    for name, lr in (("fedavg", 0.02), ("fedadb", 0.05)):
        make_run(tmp_path, [0.5], algorithm=name, local={"lr": lr})
    comparison = compare(tmp_path)
    assert comparison.settings == ["digits"]
    expected = "Learning rates were given, not searched here: FedAvg 0.02, FedADB 0.05."
    assert expected in notes(comparison)


def test_a_note_says_where_the_rates_of_the_presets_come_from(tmp_path: Path) -> None:
    for name in ("fedavg", "fedadb"):
        make_run(tmp_path, [0.5], algorithm=name)
    assert (
        "Learning rates are the dataset's defaults, which 4 runs per method chose on validation "
        "data: FedAvg 0.01, FedADB 0.03." in notes(compare(tmp_path))
    )


def test_a_rate_per_dataset_is_named_by_dataset(tmp_path: Path) -> None:
    for name in ("fedavg", "fedadb"):
        for dataset, lr in (("svhn", 0.01), ("digits", 0.05)):
            make_run(tmp_path, [0.5], algorithm=name, dataset=dataset, local={"lr": lr})
    given = "Learning rates were given, not searched here"
    assert f"{given}: SVHN 0.01, digits 0.05." in notes(compare(tmp_path))
    make_run(tmp_path, [0.5], algorithm="fedntd", local={"lr": 0.1})
    assert (
        f"{given}: SVHN: FedAvg 0.01, FedADB 0.01; digits: FedAvg 0.05, FedNTD 0.1, FedADB 0.05."
        in notes(compare(tmp_path))
    )


def test_a_rate_of_the_method_is_no_unnamed_difference_of_columns(tmp_path: Path) -> None:
    for alpha, lr in ((0.1, 0.01), (1.0, 0.05)):
        federation = {"partition": {"name": "dirichlet", "alpha": alpha}}
        make_run(tmp_path, [0.5], local={"lr": lr}, federation=federation)
    given = "Learning rates were given, not searched here: digits, α=0.1: 0.01; digits, α=1: 0.05."
    assert notes(compare(tmp_path)) == ["One seed.", given]


def test_a_tuned_hyperparameter_makes_no_row_of_its_own(tmp_path: Path) -> None:
    """FedProx has another µ on each dataset: a variant by hand, one method if it was searched."""
    for dataset, mu in (("svhn", 0.1), ("digits", 1.0)):
        algorithm = {"name": "fedprox", "mu": mu}
        run = make_run(tmp_path, [0.5] * 5, algorithm=algorithm, dataset=dataset, validation=0.1)
        trial = Trial(run.name, {"algorithm.mu": mu}, "finished", 5, 0.5)
        search = Search(
            "fedprox", read_recorded_run(run).experiment, {"algorithm.mu": [mu]}, "", "", 1, [trial]
        )
        write_search(tmp_path / "later" / f"{dataset}.json", search)
    assert compare(tmp_path).methods == ["FedProx, mu=0.1", "FedProx, mu=1"]
    (tmp_path / "later").rename(tmp_path / "searches")
    comparison = compare(tmp_path)
    assert comparison.methods == ["FedProx"]
    assert "FedProx was given 1 run to find algorithm.mu (chosen on validation data)." in notes(
        comparison
    )
    assert "Values of algorithm.mu: SVHN 0.1, digits 1." in notes(comparison)


def test_notes_on_equal_budgets(tuned: Path) -> None:
    lines = notes(compare(tuned))
    assert "Each method was given 3 runs to find local.lr (chosen on validation data)." in lines
    assert "Learning rates: FedAvg 0.01, FedADB 0.03." in lines


def test_notes_on_different_budgets(tuned: Path) -> None:
    path = next((tuned / "searches").glob("*fedadb*"))
    search = read_search(path)
    more = [*search.trials, search.trials[-1], search.trials[-1]]
    # The runs that were made count, not those that were allowed.
    write_search(path, search._replace(budget=8, trials=more))
    make_run(tuned, [0.5] * 5, algorithm="fedntd", validation=0.1)
    assert (
        "Runs to find settings (chosen on validation data): FedAvg: 3 runs to find local.lr; "
        "FedNTD: none; FedADB: 5 runs to find local.lr." in notes(compare(tuned))
    )


def test_a_note_names_values_at_the_end_of_their_range(tmp_path: Path) -> None:
    path = make_search(tmp_path, {0.01: 0.5, 0.03: 0.8}, algorithm="fedadb")
    space = {"local.lr": {"low": 0.003, "high": 0.03, "scale": "log"}}
    write_search(path, read_search(path)._replace(space=space))
    expected = "At the end of the searched range: local.lr = 0.03 (FedADB)."
    assert expected in notes(compare(tmp_path))
    space["local.lr"] = {"low": 0.003, "high": 0.1, "scale": "log"}
    write_search(path, read_search(path)._replace(space=space))
    assert expected not in notes(compare(tmp_path))


def test_notes_without_a_search(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm="fedavg", local={"lr": 0.01})
    make_run(tmp_path, [0.5], algorithm="fedadb", local={"lr": 0.01})
    assert "No method was tuned: all ran at lr=0.01." in notes(compare(tmp_path))
    make_run(tmp_path, [0.5], algorithm="fedadb", local={"lr": 0.02})
    assert "No method was tuned." in notes(compare(tmp_path))  # the columns name the rates
