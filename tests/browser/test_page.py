"""The report's page in a real browser: it loads quietly, sorts, toggles and slides."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from fedadb.report.groups import arrange
from fedadb.report.runs import read_all
from fedadb.report.watch import Watched, serve
from fedadb.report.write import write_report
from tests.report.made import make_run

pytestmark = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="there is no chromedriver: make browser"
)
PHONE, DESK = (390, 844), (1280, 900)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page")
    for seed in range(2):
        for name, top in (("fedavg", 0.5), ("fedntd", 0.6), ("fedadb", 0.8)):
            rise = [top * (1 - math.exp(-t / 5)) + 0.01 * seed for t in range(1, 21)]
            classes = [[a, min(1.0, a * t / 10)] for t, a in enumerate(rise, start=1)]
            make_run(place / "runs", rise, classes, algorithm=name, seed=seed)
    return write_report(arrange(read_all([place])[0]), "Three methods", place / "report")


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    words = "--headless=new --no-sandbox --disable-dev-shm-usage --disable-gpu"
    for word in (*words.split(), "--force-prefers-reduced-motion"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    browser.set_window_size(*DESK)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    return browser


def show(browser: webdriver.Chrome, section: str) -> None:
    """Scroll there, and wait until it is drawn."""
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", section)
    WebDriverWait(browser, 20).until(
        lambda b: b.execute_script("return seen.has(arguments[0])", section)
    )


def column(browser: webdriver.Chrome, number: int) -> list[str]:
    rows = browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    return [row.find_elements(By.TAG_NAME, "td")[number].text for row in rows]


def traces(browser: webdriver.Chrome, plot: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser.execute_script(
        "return document.getElementById(arguments[0]).data.map(t => ({name: t.name, z: t.z}))", plot
    )
    return found


def test_it_loads_without_a_word_or_a_request(opened: webdriver.Chrome, page: Path) -> None:
    assert opened.title == "Three methods · fedadb"
    for section in ("overview", "curves", "convergence", "classes", "measured", "partition"):
        show(opened, section)
    show(opened, "anchors")
    show(opened, "runs")
    assert opened.get_log("browser") == []
    asked = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in opened.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert page.as_uri() in asked
    assert [url for url in asked if not url.startswith(("data:", page.as_uri()))] == []
    assert len(opened.find_elements(By.CSS_SELECTOR, ".plot .main-svg")) > 0


def test_the_table_sorts_and_filters(opened: webdriver.Chrome) -> None:
    show(opened, "overview")
    heads = opened.find_elements(By.CSS_SELECTOR, "#table th button")
    heads[2].click()
    assert column(opened, 1) == ["FedADB", "FedNTD", "FedAvg"]
    opened.switch_to.active_element.send_keys(Keys.ENTER)  # by keyboard, the other way round
    assert column(opened, 1) == ["FedAvg", "FedNTD", "FedADB"]
    head = opened.find_elements(By.CSS_SELECTOR, "#table th")[2]
    assert head.get_attribute("aria-sort") == "ascending"
    opened.find_element(By.ID, "filter").send_keys("fedn")
    assert column(opened, 1) == ["FedNTD"]


def test_a_curve_toggles(opened: webdriver.Chrome) -> None:
    show(opened, "curves")
    names = [t["name"] for t in traces(opened, "curve-plot")]
    assert "FedNTD" in names
    buttons = opened.find_elements(By.CSS_SELECTOR, "#methods button")
    assert [b.text for b in buttons] == ["FedAvg", "FedNTD", "FedADB"]
    buttons[1].send_keys(Keys.SPACE)
    assert "FedNTD" not in [t["name"] for t in traces(opened, "curve-plot")]
    pressed = opened.find_elements(By.CSS_SELECTOR, "#methods button")[1]
    assert pressed.get_attribute("aria-pressed") == "false"
    pressed.click()
    assert "FedNTD" in [t["name"] for t in traces(opened, "curve-plot")]
    opened.find_element(By.ID, "each").click()
    assert "FedADB, seed 1" in [t["name"] for t in traces(opened, "curve-plot")]


def test_the_slider_moves_the_heat_map(opened: webdriver.Chrome) -> None:
    show(opened, "classes")
    slider, number = (opened.find_element(By.ID, name) for name in ("round", "round-number"))
    assert number.text == "20"
    last = traces(opened, "round-plot")[0]["z"]
    slider.send_keys(Keys.HOME)
    assert number.text == "1"
    first = traces(opened, "round-plot")[0]["z"]
    assert first[0][1] < last[0][1]
    slider.send_keys(Keys.ARROW_RIGHT)
    assert number.text == "2"


def test_it_fits_a_phone(opened: webdriver.Chrome) -> None:
    opened.set_window_size(*PHONE)
    opened.refresh()
    for section in ("curves", "classes", "partition", "runs"):
        show(opened, section)
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert opened.execute_script(overflow) <= 0
    assert opened.get_log("browser") == []


def test_it_is_dark_where_one_wants_it_dark(opened: webdriver.Chrome) -> None:
    def background() -> str:
        paper = "return getComputedStyle(document.body).backgroundColor"
        return str(opened.execute_script(paper))

    light = background()
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert background() != light
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_live_page_follows_and_keeps_the_focus(browser: webdriver.Chrome, tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.1, 0.2, 0.3])
    with serve(Watched([tmp_path], "Live"), 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        browser.get(f"http://127.0.0.1:{server.server_address[1]}/")
        show(browser, "curves")
        state = browser.find_element(By.ID, "state")
        assert "1 runs, 1 finished, 3 rounds" in state.text
        browser.execute_script("document.querySelector('#methods button').focus()")
        last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])
        with (run / "rounds.jsonl").open("a") as file:
            file.write(json.dumps({**last, "round": 4}) + "\n")
        WebDriverWait(browser, 20).until(lambda b: "4 rounds" in state.text)
        assert browser.switch_to.active_element.text == "FedADB"
        server.shutdown()
