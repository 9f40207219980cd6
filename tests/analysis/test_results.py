"""`fedadb analyse` from runs to pictures, and what it says to wrong input."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from fedadb import cli
from fedadb.analysis import NAMES
from fedadb.analysis.hessian import mean_loss
from fedadb.analysis.subject import batches, load, stratified
from fedadb.analysis.write import ANALYSES
from fedadb.storage.records import read_records
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("runs")
    for name in ("fedadb", "fedavg"):
        table = {"rounds": 3, "algorithm": name, "local": {"epochs": 1}, "record_clients": True}
        run(Experiment.read(table), place / name)
    return place / "fedadb", place / "fedavg"


def invoke(
    *words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["fedadb", "analyse", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_all_analyses_of_two_runs(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*map(str, runs), "--images", "60"]
    assert tuple(ANALYSES) == NAMES
    code, shown, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert "hessian: lambda1" in shown
    out = runs[0] / "analysis"
    assert {p.name for p in out.iterdir()} == {
        f"{n}.{e}" for n in NAMES for e in ("json", "png", "pdf")
    }
    for picture in out.glob("*.png"):
        with Image.open(picture) as image:
            assert min(image.size) > 200
    found = {name: json.loads((out / f"{name}.json").read_text()) for name in NAMES}
    assert found["hessian"].keys() == {"FedADB, seed 0", "FedAvg, seed 0"}
    assert found["psnr"].keys() == {"FedADB, seed 0"}
    top = found["hessian"]["FedADB, seed 0"]
    assert top["lambda1"] == pytest.approx(top["lambda1_by_power_iteration"], rel=0.01)
    plane = found["landscape"]["FedADB, seed 0"]
    assert plane["loss"][10][10] == plane["centre"]
    subject = load(runs[0])
    rows = stratified(subject.train.y, 60, range(10), "training")
    given = batches(subject, subject.train, rows)
    assert plane["centre"] == mean_loss(subject.world.f, subject.w, given)
    assert len(found["forgetting"]["FedADB, seed 0"]["in_local"]) == 3


def test_what_clients_know_is_recorded_each_round(runs: tuple[Path, Path]) -> None:
    for directory in runs:
        for line in read_records(directory / "rounds.jsonl"):
            assert 0 <= line["out_local"] <= 1
            assert 0 <= line["in_local"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hessian"], "name a run's directory as well"),
        (["nowhere"], "nowhere is no directory of a run and no analysis (heatmap"),
        (["FEDAVG", "psnr"], "fedavg made no anchors; FedADB with generate does"),
        (["FEDADB", "hessian", "--images", "99999"], "--images 99999: there are 1438 training"),
    ],
)
def test_wrong_input(
    words: list[str],
    message: str,
    runs: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"FEDADB": str(runs[0]), "FEDAVG": str(runs[1])}
    given = [places.get(word, word) for word in words]
    code, _, err = invoke(*given, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert message in err


def test_runs_that_lack_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = invoke(str(tmp_path), monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "is not a run: there is no experiment.toml" in err) == (2, True)
    table = {"rounds": 1, "algorithm": {"name": "fedadb", "steps": 1, "keep_anchors": []}}
    run(Experiment.read(table), tmp_path / "run")
    code, _, err = invoke(str(tmp_path / "run"), "pca", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "kept no anchors: run it with algorithm.keep_anchors" in err) == (2, True)
    (tmp_path / "run" / "model.safetensors").unlink()
    words = [str(tmp_path / "run"), "hessian"]
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "is not finished: there is no model.safetensors yet" in err) == (2, True)
    code, _, err = invoke(words[0], monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "hessian is left out: " in err, "pca is left out: " in err) == (0, True, True)
    there = {path.stem for path in (tmp_path / "run" / "analysis").iterdir()}
    assert there == {"heatmap", "forgetting"}
    (tmp_path / "run" / "rounds.jsonl").write_text("")
    code, _, err = invoke(words[0], "heatmap", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "has no rounds yet" in err) == (2, True)


def test_members_may_lack_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"rounds": 1, "algorithm": {"name": "fedadb", "steps": 1}, "local": {"epochs": 1}}
    federation = {"clients": 20, "participation": 0.05, "partition": {"alpha": 0.05}}
    run(Experiment.read({**table, "federation": federation}), tmp_path / "run")
    words = [str(tmp_path / "run"), "membership"]
    code, _, _ = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    found = json.loads((tmp_path / "run" / "analysis" / "membership.json").read_text())
    took_part = read_records(tmp_path / "run" / "rounds.jsonl")[0]["clients"]
    counts = json.loads((tmp_path / "run" / "partition.json").read_text())["counts"]
    classes = sum(n > 0 for n in counts[took_part[0]])
    assert 1 <= classes < 10
    assert found["FedADB, seed 0"]["images"] % classes == 0
