"""What the page says at its top, and what readers can take along: CSV, SVG, a link."""

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedadb.report import page_data
from fedadb.report.cells import Cell, Number, Table
from fedadb.report.comparison import Comparison, arrange
from fedadb.report.formats import comma_separated
from fedadb.report.page import render_page
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.tables import accuracy_table, all_tables, summary_table
from tests.browser.pages import DESK, open_page, show, traces
from tests.report.synthetic_runs import add_to_records, keep_rounds, make_run

pytestmark = [
    pytest.mark.xdist_group("browser"),  # one process has the browser
    pytest.mark.skipif(
        shutil.which("chromedriver") is None, reason="there is no chromedriver: make browser"
    ),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two settings, two seeds; one run has 2 of 4 rounds."""
    runs = tmp_path_factory.mktemp("along") / "runs"
    for seed in range(2):
        for name in ("fedavg", "fedadb"):
            for lr in (0.01, 0.1):
                run = make_run(
                    runs, [0.2, 0.4, 0.5, 0.6], algorithm=name, seed=seed, local={"lr": lr}
                )
                add_to_records(run, seconds=30.0, bytes_down=1000, bytes_up=1500)
                if (seed, name, lr) == (1, "fedadb", 0.1):
                    keep_rounds(run, 2)
    return write_page_alone(runs, "Along")


def write_page_alone(runs: Path, title: str) -> Path:
    """The page without the files of the report, whose figures take seconds."""
    page = runs.parent / "index.html"
    page.write_text(render_page(page_data.page_data(arrange(collect_runs([runs]).runs), title)))
    return page


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    open_page(browser, page, DESK)
    browser.execute_script("copyText = (text) => { window.copied = text; }")
    return browser


def copied(browser: webdriver.Chrome) -> Any:
    return browser.execute_script("return window.copied")


def test_the_top_says_where_runs_stand_and_what_they_cost(opened: webdriver.Chrome) -> None:
    state = opened.find_element(By.ID, "state").text
    assert state.startswith("8 runs, 7 finished, 30 rounds of 32.")
    assert "Training took 15 min" in state  # 30 rounds of 30 s
    assert "About 60 s left" in state
    (entry,) = opened.find_elements(By.CSS_SELECTOR, "#unfinished li")
    assert "FedADB" in entry.text
    assert "2 of 4 rounds, about 60 s left, accuracy 40.0 %" in entry.text
    bar = entry.find_element(By.TAG_NAME, "progress")
    assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("2", "4")


def test_durations_and_sizes(opened: webdriver.Chrome) -> None:
    seconds = [0.4, 75, 100, 5400, 200_000]
    words = opened.execute_script("return arguments[0].map(duration)", seconds)
    assert words == ["0 s", "75 s", "2 min", "1 h 30 min", "2 d 7 h"]
    sizes = opened.execute_script("return [2500, 45_000_000, 1_230_000_000].map(bytes)")
    assert sizes == ["2.5 kB", "45 MB", "1.2 GB"]


def test_a_row_has_the_settings_of_its_method(opened: webdriver.Chrome) -> None:
    show(opened, "overview")
    cells = opened.find_elements(By.CSS_SELECTOR, "#table tbody details")
    own = "eta=1, lam=0.0001"
    shown = ["lr=0.01", f"lr=0.01, {own}", "lr=0.1", f"lr=0.1, {own}"]
    assert [cell.text for cell in cells] == shown
    summary = cells[1].find_element(By.TAG_NAME, "summary")
    summary.send_keys(Keys.ENTER)
    assert "algorithm.anchors_per_class = 1" in cells[1].text
    opened.execute_script("redraw()")  # as a live page does
    again = opened.find_elements(By.CSS_SELECTOR, "#table tbody details")[1]
    assert again.get_attribute("open") is not None


def test_tables_are_copied_as_the_files_of_the_report(opened: webdriver.Chrome, page: Path) -> None:
    show(opened, "overview")
    buttons = opened.find_elements(By.CSS_SELECTOR, "#overview .actions button")
    buttons[0].send_keys(Keys.ENTER)
    comparison = arrange(collect_runs([page.parent / "runs"]).runs)
    assert copied(opened) == comma_separated(summary_table(comparison))
    assert buttons[0].text == "Copied"
    assert opened.find_element(By.ID, "announcement").text == "Overview table: Copied"
    buttons[1].click()
    assert copied(opened) == comma_separated(accuracy_table(comparison))


def test_a_table_without_a_file_is_copied_as_it_is_shown(opened: webdriver.Chrome) -> None:
    show(opened, "sweeps")
    opened.find_elements(By.CSS_SELECTOR, "#sweeps .scroll + .actions button")[0].click()
    rows = list(csv.reader(io.StringIO(copied(opened))))
    assert rows[0] == ["local.lr", "0.01", "0.1", "best − worst"]
    assert rows[1] == ["FedAvg", "42.50 ± 0.00", "42.50 ± 0.00", "0.00"]
    assert opened.execute_script("return [field('a,b'), field('a\"b'), field('ab')]") == [
        '"a,b"',
        '"a""b"',
        "ab",
    ]


def test_a_figure_is_saved_as_svg(opened: webdriver.Chrome) -> None:
    show(opened, "curves")
    opened.execute_script(
        "Plotly.downloadImage = async (figure, options) => {"
        "window.saved = [await Plotly.toImage(figure, options), options.filename]}"
    )
    opened.find_element(By.CSS_SELECTOR, "#curves .plot + .actions button").click()
    image, name = WebDriverWait(opened, 20).until(lambda b: b.execute_script("return window.saved"))
    assert image.startswith("data:image/svg+xml")
    assert "FedADB" in image or "test%20accuracy" in image
    assert name == "curve-plot"


def test_a_link_leads_to_the_same_view(opened: webdriver.Chrome) -> None:
    show(opened, "curves")
    settings = Select(opened.find_element(By.ID, "curve-setting"))
    second = settings.options[1].text
    settings.select_by_index(1)
    opened.find_element(By.ID, "each").click()
    opened.find_elements(By.CSS_SELECTOR, "#methods button")[0].click()
    opened.find_element(By.CSS_SELECTOR, "#curves h2 + button").send_keys(Keys.ENTER)
    address = copied(opened)
    assert "#curves?" in address
    assert "each=true" in address
    opened.get("about:blank")
    opened.get(address)
    show(opened, "curves")
    assert Select(opened.find_element(By.ID, "curve-setting")).first_selected_option.text == second
    assert [t["name"] for t in traces(opened, "curve-plot")] == ["FedADB, seed 0", "FedADB, seed 1"]
    show(opened, "overview")
    assert opened.get_log("browser") == []


def test_a_link_can_ask_for_a_round_and_an_order(opened: webdriver.Chrome, page: Path) -> None:
    opened.get("about:blank")
    opened.get(f"{page.as_uri()}#classes?round=1&sort=1&down=true&filter=fed")
    show(opened, "classes")
    assert opened.find_element(By.ID, "round-number").text == "2"
    show(opened, "overview")
    cells = opened.find_elements(By.CSS_SELECTOR, "#table tbody td:nth-child(2)")
    assert [cell.text for cell in cells] == ["FedAvg", "FedAvg", "FedADB", "FedADB"]
    assert opened.find_element(By.ID, "filter").get_attribute("value") == "fed"


def test_a_link_to_what_is_not_there_shows_the_page(opened: webdriver.Chrome, page: Path) -> None:
    opened.get("about:blank")
    opened.get(f"{page.as_uri()}#nowhere?curve-setting=gone&class-seed=77")
    show(opened, "classes")
    assert Select(opened.find_element(By.ID, "curve-setting")).first_selected_option.text
    assert opened.get_log("browser") == []


def test_privacy_says_who_learns_what_and_what_private_runs_promise(
    browser: webdriver.Chrome, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_page(browser, page, DESK)
    show(browser, "privacy")
    assert not browser.find_element(By.ID, "privacy-table").is_displayed()
    parties = browser.find_elements(By.CSS_SELECTOR, "#disclosure-table tr td:first-child")
    assert [cell.text for cell in parties][:2] == ["The server", "The other sites"]

    def with_privacy(comparison: Comparison) -> list[Table]:
        rows = [[Cell("FedAvg"), Cell(Number(3.2, decimals=1))]]
        return [*all_tables(comparison), Table("privacy", "Privacy", ["method", "ε"], rows, ["δ"])]

    monkeypatch.setattr(page_data, "all_tables", with_privacy)
    make_run(tmp_path / "runs", [0.5, 0.6])
    open_page(browser, write_page_alone(tmp_path / "runs", "Private"), DESK)
    browser.find_element(By.CSS_SELECTOR, 'nav a[href="#privacy"]').click()
    show(browser, "privacy")
    cells = browser.find_elements(By.CSS_SELECTOR, "#privacy-table td")
    assert [cell.text for cell in cells] == ["FedAvg", "3.2"]
    assert browser.find_element(By.ID, "privacy-notes").text == "δ"
    assert browser.find_elements(By.CSS_SELECTOR, "#more-tables > div h3") == []
