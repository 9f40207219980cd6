"""The page for people who use a keyboard or a screen reader, or who see little contrast."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from fedadb.report.comparison import arrange
from fedadb.report.labels import PALETTE
from fedadb.report.page import render_page
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs
from tests.browser.pages import DESK, PHONE, open_page, show
from tests.report.synthetic_runs import add_personal, keep_rounds, make_run

pytestmark = [
    pytest.mark.xdist_group("browser"),  # one process has the browser
    pytest.mark.skipif(
        shutil.which("chromedriver") is None, reason="there is no chromedriver: make browser"
    ),
]
SECTIONS = ("overview", "curves", "sweeps", "convergence", "classes", "measured", "partition")
LEAST, LEAST_OF_SIGNS = 4.5, 3  # contrasts in WCAG 2.2, level AA; markers in legends are signs
NAMED = {"button", "combobox", "checkbox", "slider", "searchbox", "progressbar", "figure", "region"}

# The contrast of every text with what lies behind it, by the formula of WCAG.
CONTRASTS = """
const number = (text) => {
  const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
  return { rgb: [r, g, b], a };
};
const luminance = ({ rgb }) => rgb.map((v) => v / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const colour = number(getComputedStyle(one).backgroundColor);
    if (colour.a === 1) return colour;
  }
  return { rgb: [255, 255, 255], a: 1 };
};
return [...document.querySelectorAll("body *")].filter((element) => {
  const texts = [...element.childNodes].filter((node) => node.nodeType === 3);
  const own = texts.some((node) => node.textContent.trim());
  return own && element.checkVisibility() && !element.closest("script, noscript, .unseen");
}).map((element) => {
  const style = getComputedStyle(element), svg = element.namespaceURI.endsWith("svg");
  const [a, b] = [number(svg ? style.fill : style.color), behind(element)].map(luminance);
  const text = element.textContent.trim(), sign = text.length === 1 && !/[a-z0-9]/i.test(text);
  return { text, sign, contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
});
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished and unfinished runs, a sweep, and personal models."""
    runs = tmp_path_factory.mktemp("labels") / "runs"
    for name in ("fedavg", "fedadb"):
        for lr in (0.01, 0.1):
            run = make_run(runs, [0.2, 0.4, 0.8], algorithm=name, local={"lr": lr})
            add_personal(run, {"global": [0.5, 0.1], "tuned": [0.6, 0.2]})
    keep_rounds(run, 2)
    page = runs.parent / "index.html"
    page.write_text(render_page(page_data(arrange(collect_runs([runs]).runs), "Labels")))
    return page


def open_all(browser: webdriver.Chrome, page: Path, size: tuple[int, int]) -> None:
    open_page(browser, page, size)
    for section in (*SECTIONS, "personal", "anchors", "analysis", "runs"):
        show(browser, section)


def test_every_control_and_figure_has_a_name(browser: webdriver.Chrome, page: Path) -> None:
    open_all(browser, page, DESK)
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    found: dict[str, list[str]] = {}
    for node in nodes:
        role = str(node.get("role", {}).get("value", "")).lower()
        if role in NAMED and not node["ignored"]:
            found.setdefault(role, []).append(str(node.get("name", {}).get("value", "")))
    assert found.keys() == NAMED
    assert {role: names for role, names in found.items() if "" in names} == {}
    ours = [name for name in found["button"] if name.startswith(("Copy", "Save"))]
    for names in (found["figure"], ours):  # a list of them tells which is which
        assert len(names) == len(set(names)) > 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK])
def test_texts_have_contrast(
    browser: webdriver.Chrome, page: Path, scheme: str, size: tuple[int, int]
) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    open_all(browser, page, size)
    off = "document.querySelector('#methods button').click()"  # a method that is switched off
    browser.execute_script(off)
    texts: list[dict[str, Any]] = browser.execute_script(CONTRASTS)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(texts) > 100
    weak = [t for t in texts if t["contrast"] < (LEAST_OF_SIGNS if t["sign"] else LEAST)]
    assert weak == []


def test_everything_that_can_be_clicked_takes_the_focus(
    browser: webdriver.Chrome, page: Path
) -> None:
    open_all(browser, page, DESK)
    unreachable = browser.execute_script(
        "return [...document.querySelectorAll('a[href], button, select, input, summary')]"
        ".filter((one) => one.checkVisibility() && !one.closest('.modebar'))"
        ".filter((one) => { one.focus(); return document.activeElement !== one || one.tabIndex; })"
        ".map((one) => one.outerHTML)"
    )
    assert unreachable == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_method_s_colour_stands_out(
    browser: webdriver.Chrome, page: Path, scheme: str
) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    open_page(browser, page, DESK)
    shown: list[str] = browser.execute_script("return arguments[0].map(readable)", [*PALETTE])
    papers = {"light": "#ffffff", "dark": "#14181f"}
    assert browser.execute_script("return theme('--paper')") == papers[scheme]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert [colour for colour in shown if contrast(colour, papers[scheme]) < LEAST_OF_SIGNS] == []
    assert len(set(shown)) == len(PALETTE)
    changed = [colour for colour in PALETTE if colour not in shown]
    assert all(contrast(colour, papers[scheme]) < LEAST_OF_SIGNS for colour in changed)


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
