"""Analyses on the page: numbers that it draws, few enough, and pictures within a limit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedadb.core.errors import Fault
from fedadb.report.page_analyses import (
    MAX_ANCHORS,
    MAX_IMAGES,
    MAX_PICTURE_BYTES,
    analysis_data,
    analysis_pictures,
)
from fedadb.report.recorded_runs import RecordedRun, read_recorded_run
from tests.report.synthetic_runs import make_run

TITLE = "FedADB, seed 0"


def write_analysis(run: Path, name: str, results: dict[str, Any]) -> None:
    (run / "analysis").mkdir(exist_ok=True)
    (run / "analysis" / f"{name}.json").write_text(json.dumps(results))


def correlations(t: int, own: float, other: float) -> dict[str, Any]:
    return {
        "round": t,
        "centres": [[1, 0, 0], [0, 1, 0]],
        "anchors": [[0.5, 0, 0.123456], [0, 0.5, 0]],
        "pearson_3": [[own, other], [other, own]],
        "diagonal_3": own,
        "off_diagonal_3": other,
        "pearson": [[1, 0], [0, 1]],
        "diagonal": 1.0,
    }


def add_analyses(run: Path) -> None:
    """Add small results of hessian, pca and psnr, with the picture of the last one."""
    spectrum = {"eigenvalues": [9, 4, 3, -2, 1], "lambda1": 9, "anisotropy": 9}
    other = {"eigenvalues": [5, 1, 1, 1, 1], "lambda1": 5, "anisotropy": 5}
    write_analysis(run, "hessian", {TITLE: spectrum, "FedAvg, seed 0": other})
    rounds = {"early": correlations(1, 1, -0.5), "late": correlations(8, 0.9, -0.1)}
    write_analysis(run, "pca", {TITLE: rounds})
    references = {"mean": 8, "class_mean": 10, "real_nearest": 20, "noise": 7}
    by_anchor = [{"nearest": None, **references}, {"nearest": 12, **references}]
    psnr = {"round": 8, "nearest": None, "by_anchor": by_anchor, "anchor_class": [0, 1]}
    write_analysis(run, "psnr", {TITLE: psnr})
    Image.new("RGB", (60, 30)).save(run / "analysis" / "psnr.png")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_run(tmp_path, [0.5, 0.6])


def read(directory: Path) -> RecordedRun:
    return read_recorded_run(directory)


def test_lists_that_are_not_drawn_are_left_out(directory: Path) -> None:
    add_analyses(directory)
    write_analysis(directory, "forgetting", {TITLE: {"forgetting": 0.123456, "by_class": [1, 2]}})
    data = analysis_data(read(directory))
    assert data["forgetting"] == {TITLE: {"forgetting": 0.1235}}
    assert data["hessian"][TITLE]["eigenvalues"] == [9, 4, 3, -2, 1]
    late = data["pca"][TITLE]["late"]
    assert late["anchors"] == [[0.5, 0, 0.1235], [0, 0.5, 0]]
    assert late["anchor_class"] == [0, 1]
    assert "pearson" not in late
    assert late["diagonal"] == 1
    assert data["psnr"][TITLE]["by_anchor"][1]["nearest"] == 12


def test_many_images_and_anchors_are_thinned_together(directory: Path) -> None:
    n, classes = 5000, 100
    points = [[i, i] for i in range(n)]
    plane: dict[str, Any] = {"round": 1, "real": points, "class": list(range(n))}
    plane |= {"anchors": points, "anchor_class": list(range(n))}
    write_analysis(directory, "tsne", {TITLE: {"early": plane, "late": plane}})
    space: dict[str, Any] = {"centres": [[0, 0, 0]] * classes, "round": 1}
    space |= {
        "anchors": [[i, 0, 0] for i in range(n)],
        "pearson_3": [[i / n] * classes for i in range(n)],
    }
    write_analysis(directory, "pca", {TITLE: {"early": space, "late": space}})
    data = analysis_data(read(directory))
    late = data["tsne"][TITLE]["late"]
    assert len(late["real"]) == MAX_IMAGES
    assert [[c, c] for c in late["class"]] == late["real"]
    assert len(late["anchors"]) == len(late["anchor_class"]) == MAX_ANCHORS
    early = data["pca"][TITLE]["early"]
    assert len(early["pearson_3"]) == len(early["anchors"]) == MAX_ANCHORS
    assert early["anchor_class"] == [int(at[0] * classes // n) for at in early["anchors"]]


def test_results_of_another_version_are_a_fault(directory: Path) -> None:
    write_analysis(directory, "pca", {TITLE: {"early": {"round": 1}}})
    with pytest.raises(Fault, match=r"pca\.json is damaged or of another version"):
        analysis_data(read(directory))


def test_a_picture_is_embedded_and_made_smaller_if_it_is_large(directory: Path) -> None:
    assert analysis_pictures(read(directory)) == {}
    add_analyses(directory)
    assert len(analysis_pictures(read(directory))["psnr"]) < 1000
    path = directory / "analysis" / "psnr.png"
    noise = np.random.default_rng(0).integers(0, 255, (300, 3000, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    assert path.stat().st_size > MAX_PICTURE_BYTES
    assert len(analysis_pictures(read(directory))["psnr"]) < 1.4 * MAX_PICTURE_BYTES
    Image.fromarray(np.concatenate([noise] * 10)).save(path)  # too much even when it is small
    assert analysis_pictures(read(directory)) == {}
    path.write_bytes(b"damaged")
    with pytest.raises(Fault, match=r"psnr\.png is damaged"):
        analysis_pictures(read(directory))
