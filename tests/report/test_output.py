"""A report from end to end: its files, and the page's data."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from fedadb.core.errors import Fault
from fedadb.report.comparison import arrange
from fedadb.report.metrics import ewma
from fedadb.report.output import write_report
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.thinning import thin
from tests.report.synthetic_runs import add_to_records, keep_rounds, make_run, make_search


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two methods and seeds; the anchors of one round of FedADB."""
    parent = tmp_path / "runs"
    for seed in (0, 1):
        for name, top in (("fedavg", 0.5), ("fedadb", 0.8)):
            make_run(parent, [0.1, top, top - 0.05 * seed], algorithm=name, seed=seed)
    anchors: dict[str, np.ndarray] = {
        "w/body": np.zeros(3, np.float32),
        "anchors/x": np.linspace(-1, 1, 2 * 28 * 28, dtype=np.float32).reshape(2, 1, 28, 28),
        "anchors/c": np.arange(2),
        "anchors/confidence": np.array([0.9, 1.0], np.float32),
        "tau": np.array(0.95, np.float32),
        "low": np.array([-1.0], np.float32),
        "high": np.array([1.0], np.float32),
    }
    save_file(anchors, next(parent.glob("digits-fedadb-seed0-*")) / "kept-0003.safetensors")
    return parent


def write(directory: Path, title: str, out: Path) -> Path:
    return write_report(arrange(collect_runs([directory]).runs), title, out)


def data_of(directory: Path) -> dict[str, Any]:
    return page_data(arrange(collect_runs([directory]).runs), "a title")


def embedded(page: str) -> dict[str, object]:
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match
    data: dict[str, object] = json.loads(match[1])
    return data


def test_every_table_and_figure_is_written(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    page = write(runs, "A title", out)
    names = ("accuracy", "summary", "differences", "convergence", "who-learns-what")
    tables = {f"{name}.{ending}" for name in names for ending in ("md", "tex", "csv")}
    figures = {f"{f}.{e}" for f in ("curves", "convergence", "heatmap") for e in ("png", "pdf")}
    assert {p.name for p in out.iterdir()} == {*tables, *figures, "index.html"}
    for picture in out.glob("*.png"):
        with Image.open(picture) as image:
            assert min(image.size) > 300
    for figure in out.glob("*.pdf"):
        assert figure.read_bytes().startswith(b"%PDF")
    assert embedded(page.read_text())["title"] == "A title"


def test_a_tuned_comparison_has_all_tables_and_figures(tmp_path: Path) -> None:
    for dataset in ("digits", "svhn"):
        for name in ("fedavg", "fedadb"):
            scores = {0.01: 0.5, 0.1: 0.7}
            make_search(tmp_path / "runs", scores, algorithm=name, dataset=dataset)
    out = tmp_path / "report"
    data = embedded(write(tmp_path / "runs", "", out).read_text())
    assert {"differences", "ranks", "tuning"} <= {path.stem for path in out.glob("*.md")}
    assert {"ranks", "sweep-local.lr"} <= {path.name[:-4] for path in out.glob("*.png")}
    assert (
        str(data["runs"]).count("'seed': 0") == 4
    )  # the trials that were not chosen are not there


def test_the_page_contains_everything_it_needs(runs: Path, tmp_path: Path) -> None:
    """No script, style, font or picture is loaded from elsewhere."""
    page = write(runs, "", tmp_path / "report").read_text()
    assert not re.findall(
        r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?!data:)[^\"'> ]", page
    )
    packed = re.findall(r'<script id="plotly"[^>]*>([^<]*)</script>', page)[0]
    assert b"plotly.js v" in gzip.decompress(base64.b64decode(packed))
    assert len(page) < 2_500_000, "the library is packed"
    assert "class <0>" in str(embedded(page)["runs"])


@pytest.mark.parametrize(
    "name", ["<!--<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "{{ 7*7 }}"]
)
def test_no_name_is_read_as_markup(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, [0.5])
    partition = {"classes": [name, name], "counts": [[1, 2]]}
    (run / "partition.json").write_text(json.dumps(partition))
    page = write(tmp_path, name, tmp_path / "report").read_text()
    assert "<!--<script>" not in page.partition('id="data"')[2].partition("</script>")[0]
    assert name not in page or "<" not in name
    data = embedded(page)
    assert data["title"] == name
    assert f"'classes': ['{name}', '{name}']" in str(data["runs"])


def test_a_report_leaves_no_files_of_an_earlier_one(tmp_path: Path) -> None:
    for lr in (0.1, 0.2):
        make_run(tmp_path / "runs", [0.5], local={"lr": lr})
    runs, out = collect_runs([tmp_path / "runs"]).runs, tmp_path / "report"
    write_report(arrange(runs), "", out)
    assert (out / "sweep-local.lr.png").exists()
    write_report(arrange(runs[:1]), "", out)
    assert not (out / "sweep-local.lr.png").exists()
    assert not (out / "heatmap-1.png").exists()


def test_the_same_rounds_are_left_out_of_all_runs_of_a_setting(tmp_path: Path) -> None:
    """Curves are smoothed before, and a position is the same round in all of them."""
    make_run(tmp_path, [t / 2000 for t in range(1200)])
    keep_rounds(make_run(tmp_path, [t / 2000 for t in range(1200)], seed=1), 700)
    one, other = data_of(tmp_path)["runs"]
    assert len(one["t"]) == 500
    assert other["t"] == one["t"][: len(other["t"])]
    assert other["class_t"] == one["class_t"][: len(other["class_t"])]
    whole = ewma([t / 20 for t in range(1200)])  # in per cent
    assert one["smooth accuracy"][250] == pytest.approx(whole[one["t"][250] - 1], rel=1e-3)


def test_page_data_of_a_run(runs: Path) -> None:
    data = data_of(runs)
    run = next(r for r in data["runs"] if r["method"] == "FedADB" and r["seed"] == 0)
    assert run["accuracy"] == [10, 80, 80]
    assert run["class_accuracy"] == [[100, 100], [800, 800], [800, 800]]
    assert run["measured"] == {"tau": [0, 0.5, 0.6667], "beta": [0.1, 0.2, 0.3]}
    assert run["partition"]["counts"][3] == [9, 10]
    assert [a["round"] for a in run["anchors"]] == [3]
    assert [p["class"] for p in run["anchors"][0]["pictures"]] == [0, 1]
    assert run["anchors"][0]["pictures"][0]["image"].startswith("data:image/png;base64,")


def test_measurements_come_before_costs_whichever_run_is_first(runs: Path) -> None:
    for run in runs.iterdir():
        add_to_records(run, bytes_down=9, bytes_up=9, cag_seconds=1.0, in_local=0.25)
    data = data_of(runs)
    assert data["runs"][0]["method"] == "FedAvg"
    keys = [quantity["key"] for quantity in data["quantities"]]
    assert sorted(keys[:3]) == ["beta", "in_local", "tau"]
    assert keys[3:] == ["bytes_down", "bytes_up", "cag_seconds"]
    assert {"key": "in_local", "label": "in_local (%)"} in data["quantities"]
    assert data["runs"][0]["measured"]["in_local"] == [25, 25, 25]


def test_the_page_sorts_by_numbers_and_gets_its_quantiles(runs: Path) -> None:
    data = data_of(runs)
    best = data["tables"]["summary"]["header"].index("best 5")
    cell = data["tables"]["summary"]["rows"][0][best]
    assert cell["number"] == pytest.approx(100 * (1.1 / 3 + 1.05 / 3) / 2)
    assert cell["text"].startswith(f"{cell['number']:.2f} ± ")
    assert data["t_quantiles"] == {2: pytest.approx(12.7062, abs=1e-4)}


def test_a_kept_broadcast_without_anchors_is_not_shown(runs: Path) -> None:
    """Another algorithm may keep other things."""
    other = next(runs.glob("digits-fedavg-seed0-*")) / "kept-0001.safetensors"
    save_file({"momentum": np.zeros(3, np.float32)}, other)
    assert [len(run["anchors"]) for run in data_of(runs)["runs"]].count(0) == 3
    other.write_bytes(b"damaged")
    with pytest.raises(Fault, match=r"kept-0001\.safetensors is damaged"):
        data_of(runs)


def test_long_curves_are_thinned_with_both_ends() -> None:
    assert thin(5, 10) == [0, 1, 2, 3, 4]
    assert thin(1000, 5) == [0, 250, 500, 749, 999]
    assert len(thin(100_000, 500)) == 500
