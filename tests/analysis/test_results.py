"""`fedadb analyse`: from runs to numbers and figures, and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedadb.algorithms.fedadb import FedADB
from fedadb.analysis import ANALYSES, anchors, psnr
from fedadb.analysis.hessian import mean_loss
from fedadb.analysis.inputs import Options, balanced_rows, normalised_batches
from fedadb.analysis.results import module_of, require, run_analyses
from fedadb.cli.analyse import ANALYSE_HELP
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.experiment.stored import read_run, spec_to_table
from fedadb.storage.records import read_records
from tests.command_line import Ended, invoke
from tests.report.synthetic_runs import make_run

ROOT = Path(__file__).parents[2]
TABLE: dict[str, Any] = {
    "rounds": 3,
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "fedadb", "steps": 5},
    "local": {"epochs": 1},
    "record_clients": True,
}

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run of FedADB and one of FedAvg."""
    directory = tmp_path_factory.mktemp("runs")
    run(Experiment.read(TABLE), directory / "fedadb")
    run(Experiment.read(TABLE | {"algorithm": "fedavg"}), directory / "fedavg")
    return directory / "fedadb", directory / "fedavg"


def analyse(*words: object) -> Ended:
    return invoke("analyse", *words)


def test_all_analyses_of_two_runs(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchors, "PER_CLASS", 10)  # t-SNE of all images would take seconds
    code, shown, err = analyse(*runs, "--images", "40")
    assert (code, err) == (0, "")
    assert "hessian: lambda1" in shown
    out = runs[0] / "analysis"
    assert {p.name for p in out.iterdir()} == {
        f"{name}.{ending}" for name in ANALYSES for ending in ("json", "png", "pdf")
    }
    for picture in out.glob("*.png"):
        with Image.open(picture) as image:
            assert min(image.size) > 200
    results = {name: json.loads((out / f"{name}.json").read_text()) for name in ANALYSES}
    assert results["hessian"].keys() == {"FedADB, seed 0", "FedAvg, seed 0"}
    assert results["psnr"].keys() == {"FedADB, seed 0"}
    top = results["hessian"]["FedADB, seed 0"]
    assert top["lambda1"] == pytest.approx(top["lambda1_by_power_iteration"], rel=0.01)
    plane = results["landscape"]["FedADB, seed 0"]
    assert plane["loss"][10][10] == plane["centre"]
    stored = read_run(runs[0])
    train = stored.require_data().train
    assert isinstance(stored.experiment.algorithm, FedADB)
    last = stored.experiment.rounds
    noise = stored.experiment.algorithm.noise(stored.f, 10, Stream(0).at("server", last))
    sevens = stored.spec.require_images("psnr").normalise(train.x[train.y == 7])
    start, images = (anchors.as_pixels(stored, x) for x in (noise[7:8], sevens))
    measured = [one["noise"] for one in results["psnr"]["FedADB, seed 0"]["by_anchor"]]
    assert measured[7] == pytest.approx(psnr.psnr(psnr.mean_square(start, images)).max())
    assert len(set(measured)) == len(measured) == 10
    rows = balanced_rows(train.y, 40, range(10), "training")
    batches = normalised_batches(stored, train, rows)
    assert plane["centre"] == mean_loss(stored.f, stored.w, batches)
    assert len(results["forgetting"]["FedADB, seed 0"]["in_local"]) == 3


def test_the_registry_is_the_only_list() -> None:
    """Each analysis has a module with three functions, a page, and a line in the help."""
    pages = {page.stem for page in (ROOT / "docs" / "analyses").glob("*.md")}
    assert pages == set(ANALYSES)
    for name, analysis in ANALYSES.items():
        module = module_of(name)
        assert all(callable(f) for f in (module.require, module.measure, module.draw))
        assert f"fedadb analyse RUN... {name}`" in (ROOT / f"docs/analyses/{name}.md").read_text()
        assert f"- {name}: {analysis.summary}" in ANALYSE_HELP


def test_client_scores_are_recorded_in_each_round(runs: tuple[Path, Path]) -> None:
    for directory in runs:
        for record in read_records(directory / "rounds.jsonl"):
            assert 0 <= record["out_local"] <= 1
            assert 0 <= record["in_local"] <= 1


def test_a_run_may_have_the_name_of_an_analysis(
    tmp_path: Path, runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word `pca` is a run where it is the directory of a run, and an analysis elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pca").symlink_to(runs[0])
    code, _, err = analyse("pca", "heatmap", "--out", "out")
    assert (code, err) == (0, "")
    assert json.loads(Path("out/heatmap.json").read_text()).keys() == {"FedADB, seed 0"}
    (tmp_path / "pca").unlink()
    (tmp_path / "pca").mkdir()  # a directory, but not of a run
    code, _, err = analyse(runs[0], "pca", "--out", "other")
    assert (code, err) == (0, "")
    assert {path.stem for path in Path("other").iterdir()} == {"pca"}


@pytest.mark.parametrize(
    ("last", "by_class", "mean"),
    [
        ([0.25, 0.5, 1.0], [0.25, 0.0, None], 0.125),
        ([0.25, None, 1.0], [0.25, None, None], 0.25),
        ([None, None, 1.0], [None, None, None], None),
        ([None, None, None], [None, None, None], None),
    ],
)
def test_classes_that_were_not_tested_in_every_round(
    last: list[float | None],
    by_class: list[float | None],
    mean: float | None,
    tmp_path: Path,
) -> None:
    """While a site is away, the classes that only it can test are None in the record."""
    rounds = [[0.5, 0.5, None], [None, 0.5, None], last]
    directory = make_run(tmp_path, [0.5] * 3, class_accuracy=rounds, algorithm="fedavg")
    out = tmp_path / "out"
    results = run_analyses([read_run(directory)], ["heatmap", "forgetting"], out, Options())
    numbers = results["forgetting"]["FedAvg, seed 0"]
    assert (numbers["by_class"], numbers["forgetting"]) == (by_class, mean)
    for name in ("heatmap", "forgetting"):
        with Image.open(out / f"{name}.png") as image:
            assert min(image.size) > 200


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hessian"], "name the directory of a run, too"),
        (
            ["nowhere"],
            "nowhere is neither the directory of a run nor an analysis; possible are heatmap",
        ),
        (["FEDAVG", "psnr"], "fedavg generates no anchors; FedADB with generate = true does"),
        (["FEDADB", "hessian", "--images", "99999"], "--images 99999: there are 1438 training"),
        (["FEDADB", "--images", "99999"], "--images 99999: there are 1438 training"),
    ],
)
def test_wrong_input(words: list[str], message: str, runs: tuple[Path, Path]) -> None:
    directories = {"FEDADB": str(runs[0]), "FEDAVG": str(runs[1])}
    code, _, err = analyse(*(directories.get(word, word) for word in words))
    assert code == 2
    assert message in err


def test_incomplete_runs(tmp_path: Path) -> None:
    code, _, err = analyse(tmp_path)
    assert (code, "is not a run: it has no experiment.toml" in err) == (2, True)
    directory = tmp_path / "run"
    run(Experiment.read(TABLE | {"rounds": 1, "keep_broadcasts": []}), directory)
    code, _, err = analyse(directory, "pca")
    assert (code, "kept no anchors; run it with keep_broadcasts" in err) == (2, True)
    (directory / "model.safetensors").unlink()
    code, _, err = analyse(directory, "hessian")
    assert (code, "is not finished: it has no model.safetensors yet" in err) == (2, True)
    code, _, err = analyse(directory)
    assert (code, "hessian is skipped: " in err, "pca is skipped: " in err) == (0, True, True)
    written = {path.stem for path in (directory / "analysis").iterdir()}
    assert written == {"heatmap", "forgetting"}
    (directory / "rounds.jsonl").write_text("")
    code, _, err = analyse(directory, "heatmap")
    assert (code, "has no finished round yet" in err) == (2, True)


def test_runs_of_sites_have_no_images(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    """What needs records alone works; the rest says that the data are at the sites."""
    directory = tmp_path / "run"
    directory.mkdir()
    for name in ("experiment.toml", "rounds.jsonl", "model.safetensors"):
        (directory / name).write_bytes((runs[1] / name).read_bytes())
    spec = spec_to_table(read_run(runs[1]).spec)
    sites = {"run": "0" * 32, "names": ["a", "b"], "rows": [30, 40], "data": spec}
    (directory / "sites.json").write_text(json.dumps(sites))
    stored = read_run(directory)
    assert stored.data is None
    run_analyses([stored], ["heatmap", "forgetting"], tmp_path / "out", Options())
    with pytest.raises(BadInput, match="was trained by sites: their data are not here"):
        require("hessian", [stored], Options())


def test_participants_may_lack_a_class(tmp_path: Path) -> None:
    federation = {"clients": 20, "participation": 0.05, "partition": {"alpha": 0.05}}
    table = TABLE | {"rounds": 1, "federation": federation}
    run(Experiment.read(table), tmp_path / "run")
    code, _, _ = analyse(tmp_path / "run", "membership")
    assert code == 0
    results = json.loads((tmp_path / "run" / "analysis" / "membership.json").read_text())
    participants = read_records(tmp_path / "run" / "rounds.jsonl")[0]["clients"]
    counts = json.loads((tmp_path / "run" / "partition.json").read_text())["counts"]
    classes = sum(n > 0 for n in counts[participants[0]])
    assert 1 <= classes < 10
    assert results["FedADB, seed 0"]["images"] % classes == 0
