"""Writes pages, opens them, and reads what they draw."""

from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from fedadb.report.comparison import arrange
from fedadb.report.output import write_report
from fedadb.report.recorded_runs import collect_runs

PHONE, DESK = (390, 844), (1280, 900)


def write_page(runs: Path, title: str) -> Path:
    comparison = arrange(collect_runs([runs]).runs)
    return write_report(comparison, title, runs.parent / "report")


def open_page(browser: webdriver.Chrome, page: Path, size: tuple[int, int]) -> None:
    """Open the page in a window of the size; a phone's is narrower than Chrome's own minimum."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def show(browser: webdriver.Chrome, section: str) -> None:
    """Scroll to the section, and wait until it is drawn."""
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", section)
    WebDriverWait(browser, 20).until(
        lambda b: b.execute_script("return drawn.has(arguments[0])", section)
    )


def traces(browser: webdriver.Chrome, plot: str) -> list[dict[str, Any]]:
    plotted: list[dict[str, Any]] = browser.execute_script(
        "return document.getElementById(arguments[0]).data"
        ".map(t => ({name: t.name, y: t.y, z: t.z, dash: t.line?.dash}))",
        plot,
    )
    return plotted


def texts(browser: webdriver.Chrome, plot: str, selector: str) -> list[dict[str, Any]]:
    """The texts of a plot with the boxes that they fill on the screen."""
    boxes: list[dict[str, Any]] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => {"
        "const r = e.getBoundingClientRect();"
        "return {text: e.textContent, box: [r.left, r.top, r.right, r.bottom]}})",
        ", ".join(f"#{plot} {part}" for part in selector.split(", ")),
    )
    return boxes


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    (l1, t1, r1, b1), (l2, t2, r2, b2) = one["box"], other["box"]
    return bool(min(r1, r2) - max(l1, l2) > 1 and min(b1, b2) - max(t1, t2) > 1)
