"""Tables at several sites: what each tells, what they agree on, and how each reads its own."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedadb.core.columns import LIMIT, Columns, inputs_of
from fedadb.core.data import DataSpec
from fedadb.core.errors import BadInput
from fedadb.core.transform import Bounded
from fedadb.datasets.own import load_own
from fedadb.datasets.site_tables import (
    NumberSummary,
    TableSummary,
    combine,
    summarise_table,
)

COLUMNS: Columns = {"weight": [70.0, 10.0], "age": [50, 5], "sex": ["f", "m", "x"]}
SPEC = DataSpec(("ill", "well"), (5,), Bounded(*inputs_of(COLUMNS)))


def write(path: Path, *lines: str, header: str = "sex,weight,id,age,label") -> str:
    path.write_text("\n".join([header, *lines]) + "\n")
    return f"csv:{path}"


def summary(rows: int, classes: list[str], **numbers: tuple[float, float]) -> TableSummary:
    by_name = {name: NumberSummary(mean=m, std=s) for name, (m, s) in numbers.items()}
    return TableSummary(rows=rows, classes=classes, numbers=by_name, categories={"sex": ["f"]})


def test_a_site_reads_its_table_as_the_experiment_says(tmp_path: Path) -> None:
    data = write(tmp_path / "a.csv", "m,80,,60,well", header="sex,weight,id,age,label")
    train, test = load_own(data, SPEC, COLUMNS)
    # In the order of the columns' names: age, sex (f, m, x), weight. The empty id is ignored.
    assert train.x.tolist() == [[2.0, 0.0, 1.0, 0.0, 1.0]]
    assert train.y.tolist() == [1]
    assert len(test.y) == 0


def test_inputs_do_not_depend_on_the_order_of_columns(tmp_path: Path) -> None:
    here = write(tmp_path / "a.csv", "m,80,1,60,well")
    there = write(tmp_path / "b.csv", "well,60,80,m", header="label,age,weight,sex")
    turned = dict(reversed(list(COLUMNS.items())))
    assert torch.equal(load_own(here, SPEC, COLUMNS)[0].x, load_own(there, SPEC, turned)[0].x)


def test_anchors_lie_within_some_standard_deviations() -> None:
    low, high = inputs_of(COLUMNS)
    assert low == (-LIMIT, 0, 0, 0, -LIMIT)
    assert high == (LIMIT, 1, 1, 1, LIMIT)


@pytest.mark.parametrize(
    ("line", "header", "reason"),
    [
        ("m,80,1,60,dead", None, "has a class 'dead'; the federation's are ill, well"),
        ("q,80,1,60,ill", None, "row 2, column 'sex': 'q' is not a category of deployment.columns"),
        ("m,heavy,1,60,ill", None, "row 2, column 'weight': 'heavy' is not a number"),
        ("m,1e300,1,60,ill", None, "column 'weight' has numbers that are too large"),
        ("m,60,ill", "sex,age,label", "has no column 'weight', which deployment.columns names"),
        ("m,60,1,ill", "label,age,weight,sex", "has a class 'm'"),
    ],
)
def test_a_table_that_does_not_fit(
    line: str, header: str | None, reason: str, tmp_path: Path
) -> None:
    header = header or "sex,weight,id,age,label"
    with pytest.raises(BadInput, match=reason):
        load_own(write(tmp_path / "a.csv", line, header=header), SPEC, COLUMNS)


def test_the_column_of_labels_is_no_input(tmp_path: Path) -> None:
    data = write(tmp_path / "a.csv", "m,80,1,60,ill") + "#sex"
    with pytest.raises(BadInput, match=r"columns\.sex: is the column of the labels"):
        load_own(data, SPEC, COLUMNS)


def test_a_summary_is_of_the_rows_for_training(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{value},{'no' if i % 3 else 'yes'},ill" for i, value in enumerate(rng.normal(size=50))
    ]
    path = write(tmp_path / "a.csv", *lines, header="x,smokes,label").removeprefix("csv:")
    told = summarise_table(Path(path))
    columns: Columns = {"x": [0.0, 1.0]}
    spec = DataSpec(("ill",), (1,), Bounded(*inputs_of(columns)))
    train, test = load_own(f"csv:{path}", spec, columns)
    assert (told.rows, told.classes) == (40, ["ill"])
    assert told.categories == {"smokes": ["no", "yes"]}
    assert told.numbers["x"].mean == pytest.approx(train.x.mean().item(), rel=1e-5)
    assert len(test.y) == 10


def test_sites_are_combined_as_if_their_rows_were_in_one_place() -> None:
    # Rows 1, 3 and 8: the mean is 4, the variance (9 + 1 + 16) / 3.
    classes, columns = combine(
        {
            "a": summary(2, ["10", "9"], x=(2.0, 1.0)),
            "b": summary(1, ["8"], x=(8.0, 0.0)),
        }
    )
    assert columns["x"] == [4.0, pytest.approx((26 / 3) ** 0.5, rel=1e-5)]
    assert columns["sex"] == ["f"]
    assert classes == ["8", "9", "10"]


def test_a_constant_column_and_one_far_from_zero_keep_their_meaning() -> None:
    _, columns = combine(
        {
            "a": summary(3, ["i"], same=(0.1, 0.0), date=(1.7e9, 0.5)),
            "b": summary(7, ["i"], same=(0.1, 0.0), date=(1.7e9 + 1, 0.5)),
        }
    )
    assert columns["same"][1] == 1.0
    mean, std = columns["date"]
    assert mean == pytest.approx(1.7e9 + 0.7, abs=1e-4)
    assert std == pytest.approx((0.25 + 0.21) ** 0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (summary(2, ["i"], x=(0, 1), y=(0, 1)), "a.json has no column 'y', which b.json has"),
        (summary(2, ["i"]), "b.json has no column 'x', which a.json has"),
        (summary(2, ["i"], x=(0, 1), sex=(0, 1)), "column 'sex' has words in a.json and numbers"),
    ],
)
def test_sites_with_other_columns_are_not_combined(other: TableSummary, reason: str) -> None:
    if "sex" in other.numbers:
        other.categories.clear()
    with pytest.raises(BadInput, match=reason):
        combine({"a.json": summary(2, ["i"], x=(0, 1)), "b.json": other})
