"""Personal models in a report: the table by hand, the figure over clients, and the page's data."""

from pathlib import Path

import numpy as np
import pytest

from fedadb.core.errors import Fault
from fedadb.report.comparison import Comparison, arrange
from fedadb.report.output import write_report
from fedadb.report.page_data import page_data
from fedadb.report.personal import personal_table
from fedadb.report.plots import draw_personal
from fedadb.report.recorded_runs import collect_runs, read_recorded_run
from tests.report.synthetic_runs import add_personal, keep_rounds, make_run


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """FedADB with two seeds and a head of its own, FedAvg without, FedNTD without evaluation."""
    parent = tmp_path / "runs"
    for seed in (0, 1):
        run = make_run(parent, [0.5, 0.6], seed=seed)
        shift = 0.1 * seed
        add_personal(run, {
            "global": [0.6 + shift, 0.2 + shift, None, 0.4 + shift],
            "tuned": [0.5, 0.5, None, 0.8],
            "head": [0.9, 0.7, None, 0.8],
        })  # fmt: skip
    add_personal(
        make_run(parent, [0.5, 0.6], algorithm="fedavg"),
        {"global": [0.1, 0.2, 0.3, 0.4], "tuned": [0.2, 0.2, 0.2, 0.2]},
    )
    make_run(parent, [0.5, 0.6], algorithm="fedntd")
    return parent


def test_the_table_by_hand(runs: Path) -> None:
    """Seeds 0 and 1 of FedADB have global means .4 and .5, and worst clients .2 and .3."""
    table = personal_table(compare(runs))
    assert table is not None
    assert table.header == [
        "setting", "method", "round",
        "global mean", "global worst tenth", "global spread",
        "tuned mean", "tuned worst tenth", "tuned spread",
        "head mean", "head worst tenth", "head spread",
    ]  # fmt: skip
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["digits", "FedAvg", "2", "25.00", "10.00", "25.00", "20.00", "20.00", "25.00",
         "--", "--", "--"],
        ["digits", "FedADB", "2", "45.00 ± 5.00", "25.00 ± 5.00", "25.00 ± 0.00",
         "60.00 ± 0.00", "50.00 ± 0.00", "25.00 ± 0.00",
         "80.00 ± 0.00", "70.00 ± 0.00", "25.00 ± 0.00"],
    ]  # fmt: skip
    assert table.notes[-1].startswith("Each client is tested on the classes of its own rows")


def test_the_figure_has_the_clients_of_all_seeds_in_order(runs: Path) -> None:
    figure = draw_personal(compare(runs))
    assert figure is not None
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["digits\nglobal model", "digits\nfine-tuned model", "digits\nown head"]
    fedavg, fedadb = figure.axes[0].lines
    assert np.allclose(np.asarray(fedavg.get_ydata()), [10, 20, 30, 40])
    assert np.allclose(np.asarray(fedavg.get_xdata()), [12.5, 37.5, 62.5, 87.5])
    assert np.allclose(np.asarray(fedadb.get_ydata()), [20, 30, 40, 50, 60, 70])
    assert len(figure.axes[2].lines) == 1


def test_the_page_has_the_clients_of_each_seed(runs: Path) -> None:
    data = page_data(compare(runs), "title")
    by_method = {(run["method"], run["seed"]): run["personal"] for run in data["runs"]}
    assert by_method["FedNTD", 0] == {}
    assert by_method["FedAvg", 0]["global"] == {"x": [12.5, 37.5, 62.5, 87.5],
                                                "y": [10, 20, 30, 40]}  # fmt: skip
    assert by_method["FedADB", 1]["head"]["y"] == [70, 80, 90]
    assert len(data["tables"]["personal"]["rows"]) == 2


def test_the_page_has_numbers_that_only_later_rounds_have(tmp_path: Path) -> None:
    """Personal models are evaluated in some rounds, of which the first is rarely one."""
    add_personal(make_run(tmp_path, [0.5, 0.6, 0.7]), {"global": [0.25, 0.75]})
    data = page_data(compare(tmp_path), "")
    assert "personal_global_mean (%)" in [one["label"] for one in data["quantities"]]
    (shown,) = data["runs"]
    assert shown["measured"]["personal_global_mean"] == [None, None, 50]
    assert shown["measured"]["tau"] == [0, 0.5, 0.6667]


def test_a_page_of_many_clients_stays_small(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5])
    add_personal(run, {"global": [k / 4999 for k in range(5000)]})
    (shown,) = page_data(compare(tmp_path), "")["runs"]
    assert len(shown["personal"]["global"]["y"]) == 500
    assert shown["measured"]["personal_global_mean"] == [50]  # of each round, in per cent


def test_files_are_written_only_if_a_run_has_personal_models(runs: Path, tmp_path: Path) -> None:
    write_report(compare(runs), "", tmp_path / "report")
    assert {p.name for p in (tmp_path / "report").glob("personal.*")} == {
        f"personal.{ending}" for ending in ("md", "tex", "csv", "png", "pdf")
    }
    make_run(tmp_path / "plain", [0.5])
    plain = compare(tmp_path / "plain")
    assert personal_table(plain) is None
    assert draw_personal(plain) is None


def test_an_unfinished_run_is_marked_and_a_lost_file_costs_the_figure_only(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5, 0.6, 0.7])
    keep_rounds(run, 2)
    add_personal(run, {"global": [0.5, 0.25]})
    (run / "personal-0002.json").unlink()
    table = personal_table(compare(tmp_path))
    assert table is not None
    assert table.rows[0][3].text == "37.50 …"
    assert draw_personal(compare(tmp_path)) is None


def test_of_equal_runs_the_one_with_personal_models_counts(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [0.5])
    add_personal(make_run(tmp_path / "b", [0.5], personal=True), {"global": [0.5]})
    make_run(tmp_path / "c", [0.5])
    (run,) = collect_runs([tmp_path]).runs
    assert run.directory.parent.name == "b"


@pytest.mark.parametrize("text", ['{"global": [1.5]}', '{"other": [0.5]}', '{"global": 1}', "["])
def test_a_damaged_file_is_a_fault(text: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5])
    add_personal(run, {"global": [0.5]})
    (run / "personal-0001.json").write_text(text)
    with pytest.raises(Fault, match=r"personal-0001\.json is damaged"):
        page_data(arrange([read_recorded_run(run)]), "")
