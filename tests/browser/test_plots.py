"""The page's plots of sweeps, convergence and analyses, and tables that it does not know."""

import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from fedadb.report import output, page_data
from fedadb.report.cells import Cell, Number, Table
from fedadb.report.comparison import Comparison
from fedadb.report.tables import all_tables
from tests.browser.pages import PHONE, open_page, show, write_page
from tests.report.synthetic_runs import make_run

pytestmark = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="there is no chromedriver: make browser"
)


def test_a_table_without_a_place_of_its_own_is_shown(
    browser: webdriver.Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more_tables(comparison: Comparison) -> list[Table]:
        known = all_tables(comparison)
        rows = [[Cell("FedADB"), Cell(Number(4))]]
        notes = [*known[0].notes, "Every method had a budget of 4."]
        return [*known, Table("tuning", "Runs of the search", ["method", "runs"], rows, notes)]

    for module in (output, page_data):
        monkeypatch.setattr(module, "all_tables", more_tables)
    make_run(tmp_path / "runs", [0.5, 0.6])
    open_page(browser, write_page(tmp_path / "runs", "More"), PHONE)
    show(browser, "overview")
    box = browser.find_element(By.CSS_SELECTOR, "#more-tables > div")
    assert box.find_element(By.TAG_NAME, "h3").text == "Runs of the search"
    assert [cell.text for cell in box.find_elements(By.TAG_NAME, "td")] == ["FedADB", "4"]
    assert [note.text for note in box.find_elements(By.TAG_NAME, "li")] == [
        "Every method had a budget of 4."  # and not what the overview says already
    ]
    browser.execute_script("redraw()")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#more-tables > div")) == 1
