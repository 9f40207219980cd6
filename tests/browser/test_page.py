"""The report's page in a real browser: it loads quietly, sorts, toggles, slides and fits."""

import json
import math
import shutil
from itertools import combinations
from pathlib import Path
from threading import Thread

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedadb.report.watch import LiveData, serve_page
from tests.browser.pages import DESK, PHONE, open_page, overlap, show, texts, traces, write_page
from tests.report.synthetic_runs import (
    add_personal,
    add_to_records,
    make_run,
    read_records,
    write_records,
)

pytestmark = [
    pytest.mark.xdist_group("browser"),  # one process has the browser
    pytest.mark.skipif(
        shutil.which("chromedriver") is None, reason="there is no chromedriver: make browser"
    ),
]
SECTIONS = ("overview", "curves", "sweeps", "convergence", "classes", "measured", "partition")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("page") / "runs"
    for seed in range(2):
        for name, top in (("fedavg", 0.5), ("fedntd", 0.6), ("fedadb", 0.8)):
            rise = [top * (1 - math.exp(-t / 5)) + 0.01 * seed for t in range(1, 21)]
            classes = [[a, min(1.0, a * t / 10)] for t, a in enumerate(rise, start=1)]
            make_run(runs, rise, classes, algorithm=name, seed=seed)
    return write_page(runs, "Three methods")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven seeds, three rounds, a hundred clients, long names; FedAvg and FedNTD are equal."""
    runs = tmp_path_factory.mktemp("crowded") / "runs"
    names = [f"a rather long class name <{c}>" for c in range(10)]
    counts = [[(k * c) % 7 for c in range(10)] for k in range(100)]
    for seed in range(11):
        for name, top in (("fedavg", 0.5), ("fedntd", 0.5), ("fedadb", 0.8)):
            accuracy = [top / 2, top + 0.01 * seed, top]
            run = make_run(runs, accuracy, classes=10, algorithm=name, seed=seed)
            add_to_records(run, bytes_down=178_123, bytes_up=178_123)
            (run / "partition.json").write_text(json.dumps({"classes": names, "counts": counts}))
    return write_page(runs, "Many seeds")


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    open_page(browser, page, DESK)
    return browser


def column(browser: webdriver.Chrome, number: int) -> list[str]:
    rows = browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    return [row.find_elements(By.TAG_NAME, "td")[number].text for row in rows]


def test_it_loads_without_messages_and_requests(opened: webdriver.Chrome, page: Path) -> None:
    assert opened.title == "Three methods · fedadb"
    for section in (*SECTIONS, "personal", "anchors", "analysis", "runs"):
        show(opened, section)
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


def test_accuracy_is_in_per_cent_as_in_the_tables(opened: webdriver.Chrome) -> None:
    show(opened, "curves")
    axis = "return document.getElementById('curve-plot').layout.yaxis"
    assert opened.execute_script(f"{axis}.range") == [0, 100]
    assert opened.execute_script(f"{axis}.title.text") == "test accuracy (%)"
    show(opened, "classes")
    scale = opened.execute_script("return document.getElementById('round-plot').data[0].zmax")
    assert scale == 100
    assert 70 < traces(opened, "round-plot")[0]["z"][2][0] < 80  # FedADB's first class


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


def test_measurements_open_on_what_an_algorithm_measures(
    browser: webdriver.Chrome, crowded: Path
) -> None:
    """FedAvg, the first method, records its costs only."""
    open_page(browser, crowded, DESK)
    show(browser, "measured")
    quantity = Select(browser.find_element(By.ID, "measured-key"))
    assert quantity.first_selected_option.text == "tau"
    assert [option.text for option in quantity.options][-2:] == ["bytes_down", "bytes_up"]
    legend = browser.find_elements(By.CSS_SELECTOR, "#measured-legend li")
    assert [entry.text for entry in legend] == ["FedADB"]
    quantity.select_by_visible_text("bytes_down")
    legend = browser.find_elements(By.CSS_SELECTOR, "#measured-legend li")
    assert [entry.text for entry in legend] == ["FedAvg", "FedNTD", "FedADB"]  # of 33 runs


def test_what_only_some_rounds_have_is_drawn_as_points(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    add_personal(make_run(tmp_path / "runs", [0.5, 0.6]), {"global": [0.25, 0.75]})
    open_page(browser, write_page(tmp_path / "runs", "Personal"), DESK)
    show(browser, "measured")
    quantity = Select(browser.find_element(By.ID, "measured-key"))
    quantity.select_by_visible_text("personal_global_mean (%)")
    plot = "return document.getElementById('measured-plot').data.map(t => [t.mode, t.y])"
    assert browser.execute_script(plot) == [["lines+markers", [None, 50]]]
    quantity.select_by_visible_text("tau")
    assert browser.execute_script(plot) == [["lines", [0, 0.5]]]


def test_equal_curves_do_not_hide_each_other(browser: webdriver.Chrome, crowded: Path) -> None:
    open_page(browser, crowded, DESK)
    show(browser, "curves")
    dashes = {t["name"]: t["dash"] for t in traces(browser, "curve-plot") if t["name"]}
    assert dashes["FedAvg"] == dashes["FedADB"] == "solid"
    assert dashes["FedNTD"] != "solid"
    show(browser, "measured")
    Select(browser.find_element(By.ID, "measured-key")).select_by_visible_text("bytes_down")
    assert len({t["dash"] for t in traces(browser, "measured-plot")}) == 3


def test_the_interval_of_eleven_seeds_is_student_s(
    browser: webdriver.Chrome, crowded: Path
) -> None:
    """The deviation is .01 · √11, so that t · s / √11 = 2.228 · .01."""
    open_page(browser, crowded, DESK)
    curves = [[0.4 + 0.01 * k] for k in range(11)]
    half = browser.execute_script("return meanAndInterval(arguments[0]).half", curves)
    assert half == pytest.approx([2.228 * 0.01], abs=1e-5)


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_labels_are_whole_numbers_and_do_not_overlap(
    browser: webdriver.Chrome, crowded: Path, size: tuple[int, int]
) -> None:
    open_page(browser, crowded, size)
    for section, plot in (
        ("curves", "curve-plot"),
        ("classes", "class-plot"),
        ("measured", "measured-plot"),
        ("partition", "partition-plot"),
    ):
        show(browser, section)
        if section == "measured":
            Select(browser.find_element(By.ID, "measured-key")).select_by_visible_text("bytes_up")
        ticks = texts(browser, plot, ".xtick text")
        numbers = [tick["text"] for tick in ticks]
        assert 2 <= len(numbers) == len(set(numbers))
        assert all(number.isdigit() for number in numbers)
        labels = texts(browser, plot, ".xtick text, .ytick text, .xtitle, .ytitle, .gtitle")
        assert [(a, b) for a, b in combinations(labels, 2) if overlap(a, b)] == []


def test_ticks_stay_whole_after_a_zoom(browser: webdriver.Chrome, page: Path) -> None:
    open_page(browser, page, DESK)
    show(browser, "curves")
    browser.execute_script("Plotly.relayout('curve-plot', {'xaxis.range': [3.2, 5.9]})")
    WebDriverWait(browser, 20).until(
        lambda b: [t["text"] for t in texts(b, "curve-plot", ".xtick text")] == ["4", "5"]
    )


def test_sections_without_data_say_so(opened: webdriver.Chrome) -> None:
    for section in (*SECTIONS, "personal", "anchors", "analysis"):
        show(opened, section)
    for select in opened.find_elements(By.TAG_NAME, "select"):
        assert Select(select).options or not select.is_displayed()
    for section in ("sweeps", "personal", "anchors", "analysis"):
        empty = opened.find_element(By.CSS_SELECTOR, f"#{section} .empty")
        assert empty.is_displayed()
        assert empty.text.startswith("No run")


def test_personal_models_are_shown_by_kind(browser: webdriver.Chrome, tmp_path: Path) -> None:
    plain: dict[str, list[float | None]] = {"global": [0.5, 0.1], "tuned": [0.6, 0.2]}
    for name in ("fedavg", "fedadb"):
        own = plain | ({"head": [0.9, 0.7, None]} if name == "fedadb" else {})
        add_personal(make_run(tmp_path / "runs", [0.5], algorithm=name), own)
    open_page(browser, write_page(tmp_path / "runs", "Personal"), PHONE)
    show(browser, "personal")
    rows = browser.find_elements(By.CSS_SELECTOR, "#personal-table tbody tr")
    assert len(rows) == 2
    assert [t["y"] for t in traces(browser, "personal-plot")] == [[10, 50]] * 2
    kind = Select(browser.find_element(By.ID, "personal-kind"))
    assert [option.text for option in kind.options] == [
        "global model",
        "fine-tuned model",
        "own head",
    ]
    kind.select_by_visible_text("own head")
    assert [t["y"] for t in traces(browser, "personal-plot")] == [[70, 90]]
    assert browser.find_element(By.ID, "personal-legend").text == "FedADB"
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.execute_script(overflow) <= 0
    assert browser.get_log("browser") == []


def test_a_table_that_does_not_fit_has_a_hint(opened: webdriver.Chrome, page: Path) -> None:
    show(opened, "overview")
    hint = "return document.getElementById('table').parentElement.dataset.more ?? ''"
    assert opened.execute_script(hint) == ""
    open_page(opened, page, PHONE)
    show(opened, "overview")
    assert opened.execute_script(hint) == "Scroll for more columns."


def test_it_fits_a_phone(opened: webdriver.Chrome, page: Path) -> None:
    open_page(opened, page, PHONE)
    for section in (*SECTIONS, "runs"):
        show(opened, section)
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert opened.execute_script(overflow) <= 0
    assert opened.get_log("browser") == []


def test_it_is_dark_if_the_system_is(opened: webdriver.Chrome) -> None:
    def background() -> str:
        paper = "return getComputedStyle(document.body).backgroundColor"
        return str(opened.execute_script(paper))

    light = background()
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert background() != light
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_hostile_names_are_shown_as_text(browser: webdriver.Chrome, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)><script>alert(2)</script>"
    run = make_run(tmp_path / "runs", [0.5, 0.6])
    partition = {"classes": [hostile, "{{ 7*7 }}"], "counts": [[1, 2]]}
    (run / "partition.json").write_text(json.dumps(partition))
    open_page(browser, write_page(tmp_path / "runs", hostile), DESK)
    assert browser.find_element(By.ID, "title").text == hostile
    for section in (*SECTIONS, "runs"):
        show(browser, section)
    assert browser.find_elements(By.CSS_SELECTOR, "img") == []
    names = browser.execute_script("return document.getElementById('class-plot').data[0].y")
    assert names == [hostile, "{{ 7*7 }}"]
    assert browser.get_log("browser") == []  # an alert would be an error here


def test_a_live_page_follows_runs_and_keeps_the_focus(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    run = make_run(tmp_path, [0.1, 0.2, 0.3])
    with serve_page(LiveData([tmp_path], "Live"), 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        browser.get(f"http://127.0.0.1:{server.server_address[1]}/")
        show(browser, "curves")
        state = browser.find_element(By.ID, "state")
        assert "1 run, 1 finished, 3 rounds" in state.text
        browser.execute_script("document.querySelector('#methods button').focus()")
        records = read_records(run)
        write_records(run, [*records, {**records[-1], "round": 4}])
        WebDriverWait(browser, 20).until(lambda b: "4 rounds" in state.text)
        assert browser.switch_to.active_element.text == "FedADB"
        server.shutdown()
