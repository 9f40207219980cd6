"""A report from end to end: what is written, what it weighs, and that it is whole."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from fedadb.core.errors import BadInput
from fedadb.report.groups import arrange
from fedadb.report.pagedata import page_data, thin
from fedadb.report.runs import read_all
from fedadb.report.statistics import ewma
from fedadb.report.watch import Watched, serve
from fedadb.report.write import write_report
from tests.report.made import make_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    place = tmp_path / "runs"
    for seed in (0, 1):
        for name, top in (("fedavg", 0.5), ("fedadb", 0.8)):
            make_run(place, [0.1, top, top - 0.05 * seed], algorithm=name, seed=seed)
    anchored = next(place.glob("digits-fedadb-seed0-*"))
    anchors: dict[str, np.ndarray] = {
        "anchors/x": np.linspace(-1, 1, 2 * 28 * 28, dtype=np.float32).reshape(2, 1, 28, 28),
        "anchors/c": np.arange(2),
        "anchors/confidence": np.array([0.9, 1.0], np.float32),
    }
    about = {"fedadb": json.dumps({"low": "[-1.0]", "high": "[1.0]"})}
    save_file(anchors, anchored / "sent-0003.safetensors", about)
    return place


def embedded(page: str) -> dict[str, object]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, object] = json.loads(found[1])
    return data


def test_everything_is_written(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    page = write_report(arrange(read_all([runs])[0]), "A title", out)
    tables = {
        f"{t}.{e}" for t in ("accuracy", "summary", "convergence") for e in ("md", "tex", "csv")
    }
    figures = {f"{f}.{e}" for f in ("curves", "convergence", "heatmap") for e in ("png", "pdf")}
    assert {p.name for p in out.iterdir()} == {*tables, *figures, "index.html"}
    for picture in out.glob("*.png"):
        with Image.open(picture) as image:
            assert min(image.size) > 300
    for figure in out.glob("*.pdf"):
        assert figure.read_bytes().startswith(b"%PDF")
    assert embedded(page.read_text())["title"] == "A title"


def test_the_page_names_no_other_place(runs: Path, tmp_path: Path) -> None:
    """Everything is inside: no script, style, font or picture is asked for elsewhere."""
    page = write_report(arrange(read_all([runs])[0]), "", tmp_path / "report").read_text()
    assert not re.findall(
        r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?!data:)[^\"'> ]", page
    )
    assert "plotly.js v" in page
    assert "class <0>" in str(embedded(page)["runs"])


def test_no_name_can_break_the_page(tmp_path: Path) -> None:
    make_run(tmp_path, [0.5])
    title = "<!--<script>alert(1)</script>"
    page = write_report(arrange(read_all([tmp_path])[0]), title, tmp_path / "report").read_text()
    assert "<!--<script>" not in page.partition('id="data"')[2].partition("</script>")[0]
    assert embedded(page)["title"] == title


def test_a_report_leaves_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    for lr in (0.1, 0.2):
        make_run(tmp_path / "runs", [0.5], local={"lr": lr})
    runs, out = read_all([tmp_path / "runs"])[0], tmp_path / "report"
    write_report(arrange(runs), "", out)
    assert (out / "sweep-local.lr.png").exists()
    write_report(arrange(runs[:1]), "", out)
    assert not (out / "sweep-local.lr.png").exists()
    assert not (out / "heatmap-1.png").exists()


def test_rounds_are_left_out_alike_in_runs_of_a_setting(tmp_path: Path) -> None:
    """Smoothed before, and so that the same place is the same round."""
    make_run(tmp_path, [t / 2000 for t in range(1200)])
    short = make_run(tmp_path, [t / 2000 for t in range(1200)], seed=1)
    lines = (short / "rounds.jsonl").read_text().splitlines(keepends=True)
    (short / "rounds.jsonl").write_text("".join(lines[:700]))
    one, other = page_data(arrange(read_all([tmp_path])[0]), "")["runs"]
    assert len(one["t"]) == 500
    assert other["t"] == one["t"][: len(other["t"])]
    assert other["class_t"] == one["class_t"][: len(other["class_t"])]
    whole = ewma([t / 2000 for t in range(1200)])
    assert one["smooth accuracy"][250] == pytest.approx(whole[one["t"][250] - 1], rel=1e-3)


def test_page_data_of_a_run(runs: Path) -> None:
    data = page_data(arrange(read_all([runs])[0]), "t")
    run = next(r for r in data["runs"] if r["method"] == "FedADB" and r["seed"] == 0)
    assert run["accuracy"] == [0.1, 0.8, 0.8]
    assert run["class_accuracy"] == [[100, 100], [800, 800], [800, 800]]
    assert run["measured"] == {"tau": [0, 0.5, 0.6667], "beta": [0.1, 0.2, 0.3]}
    assert run["partition"]["counts"][3] == [9, 10]
    assert [a["round"] for a in run["anchors"]] == [3]
    assert [p["class"] for p in run["anchors"][0]["pictures"]] == [0, 1]
    assert run["anchors"][0]["pictures"][0]["image"].startswith("data:image/png;base64,")


def test_long_curves_are_thinned_with_both_ends() -> None:
    assert thin(5, 10) == [0, 1, 2, 3, 4]
    assert thin(1000, 5) == [0, 250, 500, 749, 999]
    assert len(thin(100_000, 500)) == 500


@pytest.fixture
def address(runs: Path) -> Iterator[str]:
    with serve(Watched([runs], "live"), 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_watching_shows_rounds_as_they_are_done(runs: Path, address: str) -> None:
    def fetch(path: str, version: str = "") -> tuple[str, str]:
        request = urllib.request.Request(address + path, headers={"If-None-Match": version})
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode(), answer.headers.get("ETag", "")

    page, _ = fetch("/")
    assert "<body data-live>" in page
    data, version = fetch("/data.json")
    assert len(json.loads(data)["runs"][0]["t"]) == 3
    with pytest.raises(urllib.error.HTTPError, match="304"):
        fetch("/data.json", version)
    run = next(runs.glob("digits-fedavg-seed0-*")) / "rounds.jsonl"
    last = json.loads(run.read_text().splitlines()[-1])
    with run.open("a") as file:
        file.write(json.dumps({**last, "round": 4}) + "\n")
    data, _ = fetch("/data.json", version)
    assert max(len(r["t"]) for r in json.loads(data)["runs"]) == 4
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch("/etc/passwd")
    elsewhere = urllib.request.Request(address, headers={"Host": "example.org"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(elsewhere)


def test_a_port_that_is_taken_is_told(runs: Path, address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(BadInput, match=f"--port {port}: Address already in use"):
        serve(Watched([runs], ""), port)
