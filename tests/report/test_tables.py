"""Tables by hand, and in each format."""

import csv
import json
from pathlib import Path

import pytest

from fedadb.report import tables
from fedadb.report.convergence import convergence
from fedadb.report.formats import Entry, Table, comma_separated, latex, markdown
from fedadb.report.groups import Board, arrange
from fedadb.report.runs import read_all
from fedadb.report.sweeps import sweeps
from tests.report.made import make_run


def board(place: Path) -> Board:
    return arrange(read_all([place])[0])


def texts(table: Table) -> list[list[str]]:
    return [[entry.text for entry in row] for row in table.rows]


def test_accuracy_by_hand(tmp_path: Path) -> None:
    """Best five of seed 0: .2 to .6, .4; of seed 1 .5 throughout. Mean .45, deviation .05."""
    make_run(tmp_path, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], algorithm="fedavg")
    make_run(tmp_path, [0.5] * 6, algorithm="fedavg", seed=1)
    make_run(tmp_path, [0.7] * 6, algorithm="fedadb")
    table = tables.accuracy(board(tmp_path))
    assert table.header == ["", "digits"]
    assert texts(table) == [["FedAvg", "45.00 ± 5.00"], ["FedADB", "70.00"]]
    assert [row[1].best for row in table.rows] == [False, True]
    assert table.notes == ["Mean ± population standard deviation over 1 to 2 seeds."]


def test_averages_need_every_column(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5], algorithm="fedavg")
    make_run(tmp_path, [0.7], algorithm="fedavg", dataset="svhn")
    make_run(tmp_path, [0.9], algorithm="fedadb")
    table = tables.accuracy(board(tmp_path))
    assert table.header == ["", "SVHN", "digits", "average"]
    assert texts(table) == [["FedAvg", "70.00", "50.00", "60.00"], ["FedADB", "--", "90.00", "--"]]


def test_the_paper_s_value_stands_beside_ours_in_its_own_setting(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, [0.2 + 0.001 * seed] * 300, algorithm="fedavg", dataset="organamnist",
                 seed=seed)  # fmt: skip
    whole = tables.accuracy(board(tmp_path))
    assert whole.rows[0][1] == Entry("20.10 ± 0.08", best=True, paper="26.68 ± 2.78")
    make_run(tmp_path / "short", [0.2] * 30, algorithm="fedavg", dataset="organamnist")
    short = tables.accuracy(board(tmp_path / "short"))
    assert short.rows[0][1].paper == ""
    assert "OrganAMNIST: 30 rounds, where the paper has 300." in short.notes


def test_rounds_to_targets_by_hand(tmp_path: Path) -> None:
    """Best .9: targets 40 (40.5), 58 (58.5) and 76 % (76.5). FedADB is there at once."""
    make_run(tmp_path, [0.9] * 4, algorithm="fedadb")
    make_run(tmp_path, [0.5, 0.9, 0.9, 0.9], algorithm="fedavg")  # smoothed .5, .58, .644, .6952
    table = convergence(board(tmp_path))
    assert table.header == ["setting", "target", "FedAvg", "FedADB"]
    assert texts(table) == [
        ["digits", "40 %", "1 (1.0×)", "1 (1.0×)"],
        ["digits", "58 %", "2 (2.0×)", "1 (1.0×)"],
        ["digits", "76 %", "--", "1 (1.0×)"],
        ["mean ratio", "", "1.5×", "1.0×"],
        ["median ratio", "", "1.5×", "1.0×"],
        ["targets not reached", "", "1", "0"],
    ]


def test_the_summary_does_not_hide_how_far_runs_are(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.2, 0.8, 0.6], [[0.3, 0.1], [1.0, 0.6], [0.4, 0.8]])
    table = tables.summary(board(tmp_path))
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
    lines = (run / "rounds.jsonl").read_text().splitlines(keepends=True)
    (run / "rounds.jsonl").write_text(lines[0])
    table = tables.summary(board(tmp_path))
    assert texts(table)[0][5:7] == ["--", "1/3"]
    assert "1 of the runs are not finished." in table.notes


TABLE = Table(
    "t", "A & B", ["", "α=0.1", "plain"],
    [[Entry("one|two_3"), Entry("45.00 ± 5.00", True, "40.00 ± 1.00"), Entry("2 (1.5×)")]],
    ["50 % of it."],
)  # fmt: skip


def test_markdown() -> None:
    assert markdown(TABLE).splitlines() == [
        "**A & B**",
        "",
        "|  | α=0.1 | plain |",
        "| --- | --- | --- |",
        r"| one\|two_3 | **45.00 ± 5.00** <sub>paper 40.00 ± 1.00</sub> | 2 (1.5×) |",
        "",
        "50 % of it.  ",
    ]


def test_latex() -> None:
    text = latex(TABLE)
    assert r"\caption{A \& B. 50 \% of it.}" in text
    assert r" & $\alpha$=0.1 & plain \\" in text
    assert (
        r"one|two\_3 & \textbf{45.00 $\pm$ 5.00} {\scriptsize\color{gray}40.00 $\pm$ 1.00}" in text
    )
    assert text.count(r"\begin") == text.count(r"\end") == 2


def test_csv_has_a_column_for_every_number() -> None:
    head, row = csv.reader(comma_separated(TABLE).splitlines())
    assert head == [
        "",
        "α=0.1",
        "α=0.1 std",
        "α=0.1 (paper)",
        "α=0.1 (paper) std",
        "plain",
        "plain ratio",
    ]
    assert row == ["one|two_3", "45.00", "5.00", "40.00", "1.00", "2", "1.5"]


def test_a_setting_that_varies_alone_is_a_sweep(tmp_path: Path) -> None:
    for name in ("fedavg", "fedadb"):
        for lr in (0.01, 0.1):
            make_run(tmp_path, [lr], algorithm=name, local={"lr": lr})
    make_run(tmp_path, [0.5], algorithm={"name": "fedadb", "steps": 10}, local={"lr": 0.01})
    found = sweeps(board(tmp_path))
    assert found.keys() == {"local.lr", "algorithm.steps"}
    assert {name: sorted(line) for name, line in found["local.lr"].items()} == {
        "FedAvg": [0.01, 0.1],
        "FedADB": [0.01, 0.1],
    }
    assert {name: sorted(line) for name, line in found["algorithm.steps"].items()} == {
        "FedADB": [10, 50]
    }


def test_datasets_alone_are_no_sweep(tmp_path: Path) -> None:
    """Another dataset brings another number of rounds and clients with it."""
    make_run(tmp_path, [0.5] * 3, dataset="svhn")
    make_run(tmp_path, [0.5] * 2, dataset="digits")
    assert sweeps(board(tmp_path)) == {}


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_are_enough_for_every_table(tmp_path: Path, rounds: int) -> None:
    make_run(tmp_path, [0.5] * rounds)
    for table in (tables.accuracy, tables.summary, convergence):
        made = table(board(tmp_path))
        assert all(len(row) == len(made.header) for row in made.rows)


def test_ratios_are_of_the_same_setting(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5, 0.9, 0.9], algorithm="fedavg")
    make_run(tmp_path, [0.9] * 3, algorithm="fedadb", dataset="svhn")
    rows = texts(convergence(board(tmp_path)))
    assert rows[-3] == ["mean ratio", "", "--", "1.0×"]


def test_what_is_still_running_has_not_failed(tmp_path: Path) -> None:
    make_run(tmp_path, [0.9] * 4, algorithm="fedadb")
    slow = make_run(tmp_path, [0.1] * 4, algorithm="fedavg")
    lines = (slow / "rounds.jsonl").read_text().splitlines(keepends=True)
    (slow / "rounds.jsonl").write_text("".join(lines[:2]))
    rows = texts(convergence(board(tmp_path)))
    assert [row[2] for row in rows[:3]] == ["…"] * 3
    assert rows[-1] == ["targets not reached", "", "0", "0"]


def test_averages_are_of_one_scenario_and_of_nothing_but_datasets(tmp_path: Path) -> None:
    for dataset, accuracy in (("svhn", 0.2), ("organamnist", 0.4)):
        for scenario, more in (("cross-device", 0.0), ("cross-silo", 0.2)):
            federation = {"scenario": scenario}
            make_run(tmp_path / "a", [accuracy + more], dataset=dataset, federation=federation)
    table = tables.accuracy(board(tmp_path / "a"))
    assert table.header[-2:] == ["average, cross-device", "average, cross-silo"]
    assert texts(table)[0][-2:] == ["30.00", "50.00"]
    for lr in (0.1, 0.2):
        make_run(tmp_path / "b", [0.5], local={"lr": lr})
    assert "average" not in tables.accuracy(board(tmp_path / "b")).header


def test_the_accuracy_of_each_domain_in_the_best_rounds(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.1, 0.5, 0.5, 0.5, 0.5, 0.5])
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["domain_accuracy"] = [line["accuracy"] - 0.1, line["accuracy"] + 0.1]
    (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = tables.domains(board(tmp_path))
    assert table is not None
    assert table.header == ["setting", "method", "0", "1", "mean"]  # they have no names here
    assert texts(table) == [["digits", "FedADB", "40.00", "60.00", "50.00"]]
