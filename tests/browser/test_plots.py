"""The page's plots of sweeps, convergence and analyses, and tables that it does not know."""

import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from fedadb.report import output, page_data
from fedadb.report.cells import Cell, Number, Table
from fedadb.report.comparison import Comparison
from fedadb.report.tables import all_tables
from tests.browser.pages import DESK, PHONE, open_page, overlap, show, texts, traces, write_page
from tests.report.synthetic_runs import keep_rounds, make_run
from tests.report.test_page_analyses import add_analyses

pytestmark = [
    pytest.mark.xdist_group("browser"),  # one process has the browser
    pytest.mark.skipif(
        shutil.which("chromedriver") is None, reason="there is no chromedriver: make browser"
    ),
]
LEARNING_RATES = {0.005: 0.2, 0.02: 0.6, 0.1: 0.4}  # and the accuracies there


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three learning rates; FedADB's fixed β varies, too. A run of FedAvg is unfinished."""
    runs = tmp_path_factory.mktemp("plots") / "runs"
    for lr, top in LEARNING_RATES.items():
        for seed in range(2):
            for name, factor in (("fedavg", 1.0), ("fedadb", 1.5)):
                accuracy = [factor * top * min(1, t / 3) + 0.01 * seed for t in range(1, 9)]
                run = make_run(runs, accuracy, algorithm=name, seed=seed, local={"lr": lr})
                if (name, lr, seed) == ("fedavg", 0.1, 1):
                    keep_rounds(run, 3)
                if (name, lr, seed) == ("fedadb", 0.02, 0):
                    add_analyses(run)
    for beta in (0.25, 0.75):
        make_run(runs, [0.5] * 8, algorithm={"name": "fedadb", "beta": beta}, local={"lr": 0.02})
    return write_page(runs, "Plots")


@pytest.fixture(params=[DESK, PHONE], ids=["desk", "phone"])
def opened(
    browser: webdriver.Chrome, page: Path, request: pytest.FixtureRequest
) -> webdriver.Chrome:
    open_page(browser, page, request.param)
    return browser


def layout(browser: webdriver.Chrome, plot: str, path: str) -> Any:
    return browser.execute_script(f"return document.getElementById('{plot}').layout.{path}")


def drawn(browser: webdriver.Chrome, plot: str, selector: str) -> int:
    """How many elements of the plot are on the screen."""
    return len(browser.find_elements(By.CSS_SELECTOR, f"#{plot} {selector}"))


def test_the_sweep_over_learning_rates_is_first(opened: webdriver.Chrome) -> None:
    show(opened, "sweeps")
    key = Select(opened.find_element(By.ID, "sweep-key"))
    assert [option.text for option in key.options] == ["learning rate (local.lr)", "algorithm.beta"]
    shown = traces(opened, "sweep-plot")
    assert [trace["name"] for trace in shown] == ["FedAvg", "FedADB", "paper"]
    assert drawn(opened, "sweep-plot", ".errorbar") == 6
    assert layout(opened, "sweep-plot", "xaxis.type") == "log"
    ticks = texts(opened, "sweep-plot", ".xtick text")
    assert [tick["text"] for tick in ticks] == ["0.005", "0.02", "0.1"]
    assert [(a, b) for a, b in combinations(ticks, 2) if overlap(a, b)] == []
    unfinished = "return document.getElementById('sweep-plot').data[0].marker.symbol"
    assert opened.execute_script(unfinished) == ["circle", "circle", "circle-open"]
    legend = opened.find_elements(By.CSS_SELECTOR, "#sweep-legend li")
    assert [entry.text for entry in legend] == ["● FedAvg", "● FedADB"]
    assert opened.get_log("browser") == []


def test_the_sweep_s_numbers_are_in_a_table(opened: webdriver.Chrome) -> None:
    show(opened, "sweeps")
    rows = opened.find_elements(By.CSS_SELECTOR, "#sweep-table tbody tr")
    best = [row.find_element(By.TAG_NAME, "strong").text for row in rows]
    assert best == ["60.50 ± 0.50", "90.50 ± 0.50"]  # at 0.02
    Select(opened.find_element(By.ID, "sweep-score")).select_by_value("last")
    assert opened.find_element(By.CSS_SELECTOR, "#sweep-table strong").text == "53.00 ± 0.50"
    assert layout(opened, "sweep-plot", "yaxis.title.text").endswith("last ten rounds")


def test_another_sweep_can_be_chosen(opened: webdriver.Chrome) -> None:
    show(opened, "sweeps")
    Select(opened.find_element(By.ID, "sweep-key")).select_by_value("algorithm.beta")
    assert traces(opened, "sweep-plot")[0]["y"] == [50, 50]
    assert layout(opened, "sweep-plot", "xaxis.type") == "linear"
    assert layout(opened, "sweep-plot", "xaxis.title.text") == "algorithm.beta"


def test_bars_show_the_rounds_to_targets(opened: webdriver.Chrome) -> None:
    """Of two classes, guessing gets 50 %: the targets at 0.005 are all below."""
    show(opened, "convergence")
    assert "chance" in opened.find_element(By.ID, "convergence-none").text
    Select(opened.find_element(By.ID, "convergence-setting")).select_by_value("digits, lr=0.02")
    shown = {trace["name"]: trace["y"] for trace in traces(opened, "convergence-plot")}
    measured = opened.execute_script("return data.convergence['digits, lr=0.02'].rounds")
    assert measured["FedAvg"] == [None, None]
    assert shown == {**measured, "not reached": shown["not reached"]}
    bars = [n for rounds in measured.values() for n in rounds if n is not None]
    assert drawn(opened, "convergence-plot", ".bars .point path") >= len(bars) > 0
    marks = [mark["text"] for mark in texts(opened, "convergence-plot", ".textpoint text")]
    assert marks == ["×"] * sum(n is None for rounds in measured.values() for n in rounds)
    labels = [tick["text"] for tick in texts(opened, "convergence-plot", ".xtick text")]
    assert labels == ["to 59 %", "to 77 %"]
    legend = opened.find_element(By.ID, "convergence-legend").text
    assert legend.split("\n")[0].startswith("FedAvg")


def test_a_target_that_may_still_be_reached_is_no_cross(opened: webdriver.Chrome) -> None:
    show(opened, "convergence")
    Select(opened.find_element(By.ID, "convergence-setting")).select_by_value("digits, lr=0.1")
    marks = {mark["text"] for mark in texts(opened, "convergence-plot", ".textpoint text")}
    assert "…" in marks


def test_the_spectrum_correlations_and_similarities_are_plots(opened: webdriver.Chrome) -> None:
    show(opened, "analysis")
    eigenvalues = {trace["name"]: trace["y"] for trace in traces(opened, "spectrum-plot")}
    assert eigenvalues == {"FedADB, seed 0": [9, 4, 3, -2, 1], "FedAvg, seed 0": [5, 1, 1, 1, 1]}
    assert "λ₁ 9, λ₁/λ₅ 9" in opened.find_element(By.ID, "spectrum-legend").text
    assert drawn(opened, "spectrum-plot", ".scatterlayer .point") == 10
    early, late = (trace["z"] for trace in traces(opened, "pearson-plot"))
    assert early == [[1, -0.5], [-0.5, 1]]
    assert late == [[0.9, -0.1], [-0.1, 0.9]]
    assert drawn(opened, "pearson-plot", ".heatmaplayer image") == 2
    assert "own class 0.9" in opened.find_element(By.ID, "pearson-means").text
    assert len(traces(opened, "components-plot")) == 4
    *_, nearest = traces(opened, "psnr-plot")
    assert nearest == {**nearest, "name": "anchor to its nearest image", "y": [None, 12]}
    assert "Equal to a training image" in opened.find_element(By.ID, "psnr-copies").text
    assert drawn(opened, "psnr-plot", ".scatterlayer .point") == 9
    picture = opened.find_element(By.CSS_SELECTOR, "#psnr-picture img")
    assert picture.is_displayed()
    assert picture.get_property("naturalWidth") == 60
    assert not opened.find_element(By.ID, "landscape").is_displayed()
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert opened.execute_script(overflow) <= 0


def test_a_missing_analysis_names_its_command(opened: webdriver.Chrome) -> None:
    show(opened, "analysis")
    missing = opened.find_element(By.ID, "analysis-missing")
    assert missing.is_displayed()
    assert "landscape does that" in missing.text
    Select(opened.find_element(By.ID, "analysis-model")).select_by_value("FedAvg, seed 0")
    assert opened.find_element(By.ID, "spectrum").is_displayed()
    assert not opened.find_element(By.ID, "correlations").is_displayed()


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


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_learning_rates_of_a_search_have_labels_with_room(
    browser: webdriver.Chrome, tmp_path: Path, size: tuple[int, int]
) -> None:
    """Values that methods do not share: ticks at round numbers, and one row per value."""
    for name, rates in (("fedavg", (0.0011, 0.012, 0.013)), ("fedadb", (0.002, 0.0131, 0.2))):
        for lr in rates:
            make_run(tmp_path / "runs", [0.5], algorithm=name, local={"lr": lr})
    open_page(browser, write_page(tmp_path / "runs", "Search"), size)
    show(browser, "sweeps")
    ticks = texts(browser, "sweep-plot", ".xtick text")
    assert len(ticks) >= 2
    assert {"0.01", "0.1"} <= {tick["text"] for tick in ticks}
    assert [(a, b) for a, b in combinations(ticks, 2) if overlap(a, b)] == []
    rows = browser.find_elements(By.CSS_SELECTOR, "#sweep-table tbody tr")
    assert [row.text.split()[1] for row in rows] == [
        "0.0011", "0.012", "0.013", "0.002", "0.0131", "0.2",
    ]  # fmt: skip
