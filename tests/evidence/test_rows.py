"""The published results: a row names its run exactly, and the docs show what the rows say."""

import shlex
from pathlib import Path

import pytest

from evidence.pages import DOCS, PAGES, TABLES, with_tables
from evidence.rows import (
    Row,
    assignments,
    command,
    identity,
    measured,
    read_rows,
    row_identity,
    row_of,
    row_table,
    write_rows,
)
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import run
from fedadb.experiment.toml_tables import override
from fedadb.report.recorded_runs import read_recorded_run

E = Experiment.read({
    "rounds": 2, "seed": 3, "algorithm": {"name": "fedadb", "beta": 0.5},
    "local": {"epochs": 1, "schedule": {"decay": 0.9}},
    "federation": {"clients": 6, "participation": 1.0, "partition": {"alpha": 5.0}},
    "filter": [{"name": "nnm", "f": 1}, {"name": "trimmed_mean", "f": 1}],
    "attack": {"name": "gaussian", "clients": [0], "sigma": 0.5}, "engine": {"workers": 1},
})  # fmt: skip


def test_the_command_of_a_row_is_its_run(tmp_path: Path) -> None:
    history = run(E, tmp_path / "run")
    row = row_of(read_recorded_run(tmp_path / "run"))
    assert float(row["last5"]) == pytest.approx(50 * sum(history.accuracy), abs=1e-4)
    words = shlex.split(command(row))
    assert words[:2] == ["fedadb", "run"]
    table: dict[str, object] = {}
    for assignment in words[3::2]:
        table = override(table, assignment)
    assert run_name(Experiment.read(table)) == run_name(E)
    write_rows([row], tmp_path / "rows.csv")
    (read,) = read_rows(tmp_path / "rows.csv")
    assert read == row
    assert assignments(read)["filter"] == E.table()["filter"]
    assert row_identity(read) == identity(E.table())
    last = history.rounds[-1]
    assert measured(read).keys() == {"tau", "gamma", "beta", "anchor_confidence"}
    assert measured(read)["beta"] == last["beta"] == 0.5


SHORT = read_rows(DOCS / "results" / "short.csv")
NUMBERS = ("trained", "best5", "last5", "last10", "forgetting", "worst_class", "measured")
SAME_KIND = ("kernels", "torch")  # kernels of one name compute the same bits; heads are torch's


@pytest.mark.parametrize("published", SHORT, ids=lambda row: row["algorithm"])
def test_a_published_row_can_be_computed_again(published: Row, tmp_path: Path) -> None:
    """To the last digit on the same kind of machine; elsewhere, rounding makes a difference."""
    e = Experiment.read({**row_table(published), "engine": {"workers": 1}})
    run(e, tmp_path / "run")
    again = row_of(read_recorded_run(tmp_path / "run"))
    if all(again[key] == published[key] for key in SAME_KIND):
        assert [again[key] for key in NUMBERS] == [published[key] for key in NUMBERS]
    assert float(again["best5"]) == pytest.approx(float(published["best5"]), abs=3)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_tables_of_the_docs_are_those_of_the_rows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == with_tables(text)


def test_every_table_is_shown() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in shown] == []
