"""What private runs promise, in tables and on the page."""

from pathlib import Path
from typing import Any

from fedadb.cli.display import describe_rounds
from fedadb.experiment.disclosure import disclosures
from fedadb.report.comparison import Comparison, arrange
from fedadb.report.disclosure import disclosure_table
from fedadb.report.output import write_report
from fedadb.report.page_data import page_data
from fedadb.report.privacy import privacy_table
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.tables import summary_table
from fedadb.storage.records import privacy_statement
from tests.report.synthetic_runs import add_to_records, make_run, read_records

DP = [{"name": "dp", "norm": 1.0, "noise": 1.0}]
PROMISE: dict[str, Any] = {
    "epsilon": 3.95849,
    "delta": 0.001,
    "noise_multiplier": 1.0,
    "clip_norm": 1.0,
    "privacy": "one client added or removed; simulated: no guarantee",
}


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


def test_the_table_has_the_seed_that_promises_least(tmp_path: Path) -> None:
    for seed, epsilon in ((0, 3.0), (1, PROMISE["epsilon"])):
        run = make_run(tmp_path / "runs", [0.5, 0.6], algorithm="fedavg", filter=DP, seed=seed)
        add_to_records(run, **{**PROMISE, "epsilon": epsilon})
    table = privacy_table(compare(tmp_path / "runs"))
    assert table is not None
    (row,) = table.rows
    texts = ["3.958", "0.001", "1.0000", "2", PROMISE["privacy"]]
    assert [cell.text for cell in row[1:]] == ["FedAvg", *texts]


def test_the_report_and_the_page_show_it(tmp_path: Path) -> None:
    add_to_records(make_run(tmp_path / "runs", [0.5, 0.6], filter=DP), **PROMISE)
    make_run(tmp_path / "runs", [0.5, 0.6])  # has no promise, and no row
    comparison = compare(tmp_path / "runs")
    data = page_data(comparison, "title")
    assert len(data["tables"]["privacy"]["rows"]) == 1
    assert "epsilon" in [quantity["key"] for quantity in data["quantities"]]
    write_report(comparison, "title", tmp_path / "report")
    assert PROMISE["privacy"] in (tmp_path / "report" / "privacy.md").read_text()


def test_a_label_names_the_filter_and_not_its_place_in_the_list(tmp_path: Path) -> None:
    for filters in (DP, [{"name": "clip", "norm": 1.0}]):
        make_run(tmp_path / "runs", [0.5, 0.6], filter=filters)
    labels = compare(tmp_path / "runs").settings
    assert sorted("filter=dp" in label for label in labels) == [False, True]
    assert not any("0=" in label for label in labels)
    make_run(tmp_path / "runs", [0.5, 0.6])
    assert compare(tmp_path / "runs").settings == [
        "digits",
        "digits, filter=clip",
        "digits, filter=dp",
    ]


def test_the_report_says_who_learns_what(tmp_path: Path) -> None:
    """Settings that tell the same share their rows."""
    make_run(tmp_path / "runs", [0.5, 0.6])
    one = disclosure_table(compare(tmp_path / "runs"))
    told = disclosures(collect_runs([tmp_path / "runs"]).runs[0].experiment)
    assert one.header == ["who", "learns", "does not learn"]
    texts = [(p, "; ".join(learns), "; ".join(hidden)) for p, learns, hidden in told]
    assert [tuple(cell.text for cell in row) for row in one.rows] == texts
    make_run(tmp_path / "runs", [0.5, 0.6], local={"epochs": 3})
    assert len(disclosure_table(compare(tmp_path / "runs")).rows) == len(told)
    make_run(tmp_path / "runs", [0.5, 0.6], filter=DP)
    both = disclosure_table(compare(tmp_path / "runs"))
    assert both.header[0] == "setting"
    assert len(both.rows) == 2 * len(told)
    assert ["filter=dp" in row[0].text for row in both.rows].count(True) == len(told)


def test_runs_that_are_not_private_have_no_such_table(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", [0.5, 0.6])
    assert privacy_table(compare(tmp_path / "runs")) is None


def test_the_terminal_shows_epsilon(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5, 0.6], filter=DP)
    plain = describe_rounds(read_records(run), 4)
    add_to_records(run, **PROMISE)
    assert "ε" not in plain
    assert describe_rounds(read_records(run), 4) == plain.replace("left", "ε 3.96  left")


def test_times_that_are_secret_are_not_shown(tmp_path: Path) -> None:
    """Those of a real private federation would tell who took part."""
    run = make_run(tmp_path / "runs", [0.5, 0.6], filter=DP)
    add_to_records(run, **PROMISE, seconds=None)
    assert describe_rounds(read_records(run), 4) == "accuracy 0.600  best 0.600  ε 3.96"
    table = summary_table(compare(tmp_path / "runs"))
    (row,) = table.rows
    assert row[table.header.index("s/round")].value is None
    (shown,) = page_data(compare(tmp_path / "runs"), "title")["runs"]
    assert (shown["seconds"], shown["pace"]) == (None, None)


def test_a_promise_in_words() -> None:
    assert privacy_statement({"accuracy": 0.5}) == ""
    expected = f"ε = 3.958 at δ = 0.001 for {PROMISE['privacy']}"
    assert privacy_statement(PROMISE) == expected
