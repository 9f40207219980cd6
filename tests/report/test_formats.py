"""A table as Markdown, LaTeX and CSV."""

import csv

from fedadb.report.cells import (
    Cell,
    Difference,
    Number,
    PublishedRounds,
    RoundsDone,
    RoundsToTarget,
    Score,
    SettingValue,
    Table,
    Traffic,
)
from fedadb.report.formats import comma_separated, latex, markdown

TABLE = Table(
    name="t",
    title="A & B",
    header=["", "α=0.1", "plain"],
    rows=[
        [
            Cell("one|two_3"),
            Cell(Score(45.0, 5.0), best=True, paper=Score(40.0, 1.0)),
            Cell(RoundsToTarget(2, 1.5)),
        ]
    ],
    notes=["50 % of it."],
)


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


def test_csv_does_not_take_names_for_numbers() -> None:
    """A name that looks like a mean and a deviation stays one column."""
    table = Table("t", "", ["method", "accuracy"], [[Cell("a ± b"), Cell(Score(1.0))]], [])
    assert comma_separated(table) == "method,accuracy\na ± b,1.00\n"


def test_an_interval_has_two_columns_in_csv() -> None:
    rows = [[Cell("a"), Cell(Difference(-12.3, 5.7))], [Cell("b"), Cell(Difference(-1.0))]]
    table = Table("t", "", ["method", "best 5"], rows, [])
    assert comma_separated(table).splitlines() == [
        "method,best 5,best 5 low,best 5 high",
        "a,-12.30,-18.00,-6.60",
        "b,-1.00,,",
    ]
    assert "$-$12.3 [$-$18.0, $-$6.6]" in latex(table)


def test_every_value_as_text_and_as_the_number_to_sort_by() -> None:
    cells = {
        "FedAvg": (Cell("FedAvg"), None),
        "--": (Cell(None), None),
        "45.12 ± 5.00 …": (Cell(Score(45.123, 5.0, running=True)), 45.123),
        "45.12": (Cell(Score(45.123)), 45.123),
        "−12.3 [−18.0, −6.6]": (Cell(Difference(-12.3, 5.7)), -12.3),
        "+0.0": (Cell(Difference(-0.04)), -0.04),
        "1e-05": (Cell(SettingValue(0.00001)), 0.00001),
        "40 %": (Cell(Number(40.2, unit=" %")), 40.2),
        "0.50": (Cell(Number(0.5, decimals=2)), 0.5),
        "12 (1.5×)": (Cell(RoundsToTarget(12, 1.5)), 12),
        "…": (Cell(RoundsToTarget(None, running=True)), None),
        "12/40": (Cell(RoundsDone(12, 40)), 12),
        "178/150": (Cell(Traffic(178.4, 150.0)), 178.4),
        "-- to 42 %": (Cell(PublishedRounds(None, 42)), None),
    }
    for text, (cell, number) in cells.items():
        assert (cell.text, cell.number) == (text, number)
