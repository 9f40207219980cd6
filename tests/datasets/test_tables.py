"""CSV files: standardised numbers, categories, labels, and cells that are wrong."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedadb import datasets
from fedadb.core.data import Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Bounded
from fedadb.datasets import csv_files
from fedadb.datasets.arrays import stratified_split

HEADER = "age,colour,height,label"


def write(path: Path, lines: list[str], header: str = HEADER) -> str:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return f"csv:{path}"


def good_lines(n: int = 40) -> list[str]:
    rng = np.random.default_rng(0)
    colours = ("red", "green", "blue")
    ages, heights = rng.normal(40, 10, n), rng.normal(170, 9, n).tolist()
    return [
        f"{ages[i]:.3f},{colours[i % 3]},{heights[i]},{('sick', 'well')[i % 2]}" for i in range(n)
    ]


def load(path: Path, lines: list[str], header: str = HEADER, column: str = "") -> Splits:
    return datasets.load(write(path / "table.csv", lines, header) + column)


def test_numbers_are_standardised_on_the_training_rows(tmp_path: Path) -> None:
    lines = good_lines()
    splits = load(tmp_path, lines)
    assert splits.classes == ("sick", "well")
    train, test = stratified_split(torch.arange(40) % 2, 2)
    for column, cell in ((0, 0), (4, 2)):
        values = np.array([float(line.split(",")[cell]) for line in lines])
        mean, std = values[train].mean(), values[train].std()
        for part, rows in ((splits.train, train), (splits.test, test)):
            np.testing.assert_allclose(part.x[:, column], (values[rows] - mean) / std, rtol=1e-5)
    assert splits.train.y.tolist() == (train % 2).tolist()


def test_categories_are_zeros_and_ones_in_the_order_of_their_names(tmp_path: Path) -> None:
    splits = load(tmp_path, good_lines())
    assert splits.spec.shape == (5,)  # age, blue, green, red, height
    train, _ = stratified_split(torch.arange(40) % 2, 2)
    place = torch.tensor([3, 2, 1])[train % 3]  # of red, green and blue
    assert torch.equal(splits.train.x[:, 1:4], torch.eye(5)[place][:, 1:4])


def test_bounds_are_those_of_the_training_rows(tmp_path: Path) -> None:
    splits = load(tmp_path, good_lines())
    assert splits.transform == Bounded.around(splits.train.x)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["b", "a", "10"], ("10", "a", "b")),
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["1", "1.0", "2e0"], ("1", "2")),
        (["0.5", "1", "0.25"], ("0.25", "0.5", "1")),
        ([" yes", "no ", "yes"], ("no", "yes")),
    ],
)
def test_words_are_sorted_as_words_and_numbers_as_numbers(
    labels: list[str], names: tuple[str, ...], tmp_path: Path
) -> None:
    lines = [f"{i},{label}" for i, label in enumerate(labels * 10)]
    splits = load(tmp_path, lines, header="x,label")
    assert splits.classes == names
    assert len(splits.test.y) == 6


def test_the_label_column_goes_by_name(tmp_path: Path) -> None:
    by_label = load(tmp_path, good_lines())
    by_colour = load(tmp_path, good_lines(), column="#colour")
    assert by_colour.classes == ("blue", "green", "red")
    assert by_colour.spec.shape == (4,)  # age, height, sick, well
    renamed = load(tmp_path, good_lines(), "age,colour,height,km/h #1", column="#km/h #1")
    assert torch.equal(renamed.train.x, by_label.train.x)
    (tmp_path / "table.csv").rename(tmp_path / "table#1.csv")
    assert datasets.present(f"csv:{tmp_path}/table#1.csv#colour")
    numbered = datasets.load(f"csv:{tmp_path}/table#1.csv#colour")
    assert torch.equal(numbered.train.y, by_colour.train.y)
    write(tmp_path / "table#1.csv", good_lines())
    assert datasets.load(f"csv:{tmp_path}/table#1.csv").classes == by_label.classes
    assert not datasets.present(f"csv:{tmp_path}/none.csv#colour")


def test_a_constant_column_is_zero(tmp_path: Path) -> None:
    lines = [f"0.1,{i},{'ab'[i % 2]}" for i in range(30)]
    splits = load(tmp_path, lines, header="same,x,label")
    assert not splits.train.x[:, 0].any()
    assert not splits.test.x[:, 0].any()
    # A test row may still differ: the training rows say nothing about its scale.
    _, test = stratified_split(torch.arange(30) % 2, 2)
    lines[int(test[0])] = lines[int(test[0])].replace("0.1,", "0.6,")
    splits = load(tmp_path, lines, header="same,x,label")
    torch.testing.assert_close(splits.test.x[0, 0], torch.tensor(0.5))


def test_quotes_blank_lines_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    lines = [f'"1{i}","a, ""b""","{i}", "x"' for i in range(10)]
    lines += ["", *(f"2{i},c,{i},y" for i in range(10)), ""]
    header = "\ufeffage,colour,height,label"
    text = "\r\n".join([header, *lines]).replace(', "x"', ',"x"')
    (tmp_path / "t.csv").write_bytes(text.encode())
    splits = datasets.load(f"csv:{tmp_path / 't.csv'}")
    assert (len(splits.train.y), len(splits.test.y)) == (16, 4)
    assert splits.spec.shape == (4,)


def changed(row: int, cells: str) -> list[str]:
    """Good lines, with other cells in a row of the file; its header is row 1."""
    lines = good_lines()
    lines[row - 2] = cells
    return lines


TEST_ROW = int(stratified_split(torch.arange(40) % 2, 2)[1].min()) + 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (changed(7, "nan,red,170,sick"), "row 7, column 'age': nan is not a finite number"),
        (changed(7, "30,red,-inf,sick"), "row 7, column 'height': -inf is not a finite number"),
        (changed(7, "30,red,1e999,sick"), "row 7, column 'height': 1e999 is not a finite number"),
        (changed(9, ",red,170,well"), "row 9, column 'age': is empty"),
        (changed(9, "30, ,170,well"), "row 9, column 'colour': is empty"),
        (changed(9, "30,red,170,"), "row 9, column 'label': is empty"),
        (changed(9, "30,NaN,170,well"), "row 9, column 'colour': NaN is a missing value"),
        (changed(9, "30,red,170,nan"), "row 9, column 'label': nan is a missing value"),
        (
            changed(8, "old,red,170,sick"),
            "row 8, column 'age': 'old' is not a number, but the column starts with one; a column "
            "of categories must start with a word",
        ),
        (
            changed(2, "unknown,red,170,sick"),
            "row 2, column 'age': 'unknown' is not a number, but most values of the column are",
        ),
        (changed(4, "30,red,170"), "row 4 has 3 cells, and the header 4"),
        (changed(4, "30"), "row 4 has 1 cell, and the header 4"),
        (changed(5, "30,red,170,sick,more"), "row 5 has 5 cells, and the header 4"),
        (
            changed(TEST_ROW, f"30,mauve,170,{('sick', 'well')[TEST_ROW % 2]}"),
            f"row {TEST_ROW}, column 'colour': 'mauve' is a category of no training row",
        ),
        (changed(5, "30,red,1e300,sick"), "column 'height' has numbers that are too large"),
        ([], "has no rows below its header"),
        (good_lines(4), "too few rows per class to set some aside for testing"),
        (changed(3, '30,"red,170,sick'), "cannot be read as CSV in UTF-8"),
    ],
)
def test_wrong_cells_are_named_by_row_and_column(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, lines)
    assert message in str(caught.value)
    assert str(tmp_path / "table.csv") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "column", "message"),
    [
        ("age,colour,height,sick", "", "has no column 'label'; its columns are age, colour,"),
        (HEADER, "#Label", "has no column 'Label'; its columns are age, colour, height, label"),
        ("age;colour;height;label", "", "its columns are age;colour;height;label"),
        (",colour,height,label", "", "column 1 has no name; name it, or remove row numbers"),
        ("age,age,height,label", "", "two columns with the name 'age'"),
        ("label", "", "has no column besides 'label'"),
        ("", "", "its columns are none"),
    ],
)
def test_wrong_headers_are_explained(
    header: str, column: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, good_lines(), header, column)
    assert message in str(caught.value)


def test_labels_that_are_not_classes_are_refused(tmp_path: Path) -> None:
    lines = [f"{i},{0.1 * i}" for i in range(30)]
    with pytest.raises(BadInput, match="too few rows per class"):
        load(tmp_path, lines, header="x,label")
    with pytest.raises(BadInput, match="row 4, column 'label': is not a finite number"):
        load(tmp_path, ["1,0", "2,1", "3,inf"], header="x,label")
    with pytest.raises(BadInput, match="row 4, column 'label': -nan is a missing value"):
        load(tmp_path, ["1,0", "2,1", "3,-nan"], header="x,label")
    with pytest.raises(BadInput, match="has 1 class; it needs at least 2"):
        load(tmp_path, ["1,0", "2,0"], header="x,label")


def test_a_table_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "MAX_CATEGORIES", 2)
    with pytest.raises(BadInput, match="column 'colour' has more than 2 different words; remove"):
        load(tmp_path, good_lines())
    monkeypatch.undo()
    monkeypatch.setattr(csv_files, "MAX_LINE", 20)
    with pytest.raises(BadInput, match="is not CSV: it has a line of over 20 characters"):
        load(tmp_path, good_lines())
    monkeypatch.undo()
    for values in (150, 170):  # the file has 160 cells, and its features are 200 values
        monkeypatch.setattr(csv_files, "MAX_VALUES", values)
        with pytest.raises(BadInput, match=f"is too large: it has over {values} values"):
            load(tmp_path, good_lines())


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        datasets.load(f"csv:{tmp_path / 'none.csv'}")
    with pytest.raises(BadInput, match="is not a file"):
        datasets.load(f"csv:{tmp_path}")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(BadInput, match="is not a file"):
        datasets.load(f"csv:{tmp_path / 'pipe.csv'}")
    (tmp_path / "latin.csv").write_bytes("x,label\n1,\xe4\n".encode("latin-1"))
    with pytest.raises(BadInput, match="cannot be read as CSV in UTF-8"):
        datasets.load(f"csv:{tmp_path / 'latin.csv'}")


def test_rows_beyond_one_chunk_are_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load(tmp_path, good_lines())
    monkeypatch.setattr(csv_files, "CHUNK", 7)
    parts = load(tmp_path, good_lines())
    assert torch.equal(parts.train.x, whole.train.x)
    assert torch.equal(parts.test.y, whole.test.y)
    with pytest.raises(BadInput, match="row 23, column 'age': 'x' is not a number"):
        load(tmp_path, changed(23, "x,red,170,well"))


@given(st.text(alphabet='ab,"\n\r\t 1.-#;ä\x00', max_size=80))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_table_or_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "any.csv").write_bytes(("a,label\n" + text).encode())
    with suppress(BadInput):
        splits = datasets.load(f"csv:{tmp_path / 'any.csv'}")
        assert splits.train.x.isfinite().all()
