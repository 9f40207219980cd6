"""Experiments on data in memory, on tables and on vectors: settings, runs, resuming, anchors."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedadb
from fedadb import datasets
from fedadb.analysis import ANALYSES
from fedadb.analysis.inputs import Options
from fedadb.analysis.results import module_of
from fedadb.core.errors import BadInput
from fedadb.experiment import identity
from fedadb.experiment import run as runs
from fedadb.experiment.build import build_data, build_model
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import read_run
from fedadb.export.export_run import export_run
from fedadb.models.lenet import LeNet
from fedadb.models.mlp import MLP
from fedadb.report.anchors import kept_anchors
from fedadb.report.labels import dataset_name
from tests.command_line import invoke

RNG = np.random.default_rng(0)
Y = np.arange(240) % 4
X = (RNG.normal(size=(240, 6)) + 2 * np.eye(4, 6)[Y]) * [1, 1, 1, 1, 0, 5] + [0, 0, 0, 0, 7, 0]
QUICK: dict[str, Any] = {
    "rounds": 3,
    "local": {"epochs": 1, "batch_size": 16},
    "engine": {"workers": 1},
}


def data(**more: Any) -> fedadb.Data:
    return fedadb.Data(X, Y, **more)


def csv_file(path: Path, **more: Any) -> str:
    lines = [",".join(map(repr, x)) + f",{'abcd'[y]}" for x, y in zip(X.tolist(), Y, strict=True)]
    path.write_text("\n".join(["a,b,c,d,e,f,label", *lines]))
    return f"csv:{path}"


def npz_file(path: Path) -> str:
    np.savez(path, x=X, y=Y)
    return f"npz:{path}"


def test_settings_follow_from_the_kind_of_data() -> None:
    vectors, images = data(), fedadb.Data(RNG.random((240, 1, 28, 28)), Y)
    for given, model in ((vectors, MLP()), (images, LeNet()), ("csv:x.csv", MLP())):
        e = Experiment(dataset=given)
        assert e.model == model
        assert e.federation.clients == 10
    assert Experiment(dataset=vectors, model="lenet").model == LeNet()
    assert datasets.present(vectors)
    assert Experiment(dataset="csv:x.csv#y").dataset == f"csv:{Path.cwd() / 'x.csv'}#y"


def test_the_written_experiment_names_the_data_and_cannot_be_read_without_them() -> None:
    e = Experiment(dataset=data(name="toy"))
    table = tomllib.loads(e.toml())
    assert table["dataset"] == str(e.dataset)
    assert dataset_name(table["dataset"]) == "toy"
    assert identity.run_name(e).startswith("vectors-toy-")
    with pytest.raises(BadInput) as caught:
        Experiment.read(table)
    assert (
        "these data were in memory, not in a file; use Python, and pass the same fedadb.Data"
        in (str(caught.value))
    )
    assert Experiment.read({**table, "dataset": e.dataset}) == e


def test_run_names_follow_from_the_contents() -> None:
    one, same = (identity.run_name(Experiment(dataset=data())) for _ in range(2))
    assert one == same
    assert identity.run_name(Experiment(dataset=fedadb.Data(X + 1, Y))) != one


@pytest.mark.integration
def test_a_run_resumes_on_the_same_data_only(tmp_path: Path) -> None:
    whole = fedadb.run(Experiment(dataset=data(), **QUICK), tmp_path / "whole")
    out = tmp_path / "run"
    with runs.start_run(Experiment(dataset=data(), **QUICK), out) as active:
        next(active.rounds)
    written = (out / "experiment.toml").read_text()
    for other in (fedadb.Data(X + 1, Y), "digits"):
        with pytest.raises(BadInput, match=r"holds another experiment: dataset is 'vectors:data@"):
            fedadb.run(Experiment(dataset=other, **QUICK), out)
    assert fedadb.run(Experiment(dataset=data(), **QUICK), out).accuracy == whole.accuracy
    assert (out / "experiment.toml").read_text() == written
    assert fedadb.run(Experiment(dataset=data(), **QUICK), out).accuracy == whole.accuracy
    with pytest.raises(BadInput, match="these data were in memory"):
        read_run(out)


@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 2])
def test_fedadb_learns_a_table_with_anchors_in_its_range(tmp_path: Path, workers: int) -> None:
    e = Experiment(
        dataset=csv_file(tmp_path / "table.csv"),
        rounds=25,
        model={"hidden": [16]},
        local={"epochs": 2, "batch_size": 16, "lr": 0.05},
        engine={"workers": workers},
    )
    assert e.algorithm == fedadb.FedADB()
    history = fedadb.run(e, tmp_path / "run")
    assert max(history.accuracy) > 0.75  # of four classes; the best linear rule reaches 0.9
    splits = build_data(e)
    low, high = (getattr(splits.train.x, end)(0).values for end in ("min", "max"))
    kept = sorted((tmp_path / "run").glob("kept-*"))
    assert kept
    for path in kept:
        x = load_file(path)["anchors/x"]
        assert x.shape == (4, 6)
        assert ((x >= low) & (x <= high)).all()
        assert (x[:, 4] == 0).all()  # the constant column


@pytest.mark.integration
def test_anchors_of_vectors_may_travel_as_bytes(tmp_path: Path) -> None:
    e = Experiment(dataset=data(), algorithm=fedadb.FedADB(anchor_dtype="uint8"), **QUICK)
    history = fedadb.run(e, tmp_path / "run")
    assert all(np.isfinite(record["loss"]) for record in history.rounds)


@pytest.mark.integration
@pytest.mark.parametrize("cohort", ["auto", "stacked"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 3, 1, 1)])
def test_tensors_of_any_shape_are_trained_on(
    tmp_path: Path, shape: tuple[int, ...], cohort: str
) -> None:
    given = fedadb.Data(X.reshape(240, *shape), Y)
    e = Experiment(dataset=given, **{**QUICK, "engine": {"cohort": cohort, "workers": 1}})
    flat = Experiment(dataset=data(), **{**QUICK, "engine": {"cohort": cohort, "workers": 1}})
    history = fedadb.run(e, tmp_path / "run")
    assert len(history.rounds) == 3
    assert build_model(e, build_data(e).spec).domain.shape == shape
    assert fedadb.run(flat, tmp_path / "flat").accuracy == pytest.approx(history.accuracy, abs=0.1)


@pytest.mark.integration
def test_float_images_are_trained_on_as_bytes_are(tmp_path: Path) -> None:
    pixels = RNG.integers(256, size=(240, 12, 12), dtype=np.uint8)
    floats = fedadb.Data((pixels / 255)[:, None], Y)
    runs_ = [
        fedadb.run(Experiment(dataset=given, model="cnn", **QUICK), tmp_path / name)
        for name, given in (("bytes", fedadb.Data(pixels, Y)), ("floats", floats))
    ]
    assert runs_[0].rounds[0]["loss"] == pytest.approx(runs_[1].rounds[0]["loss"], rel=1e-3)


@pytest.mark.integration
def test_floats_in_a_file_are_the_same_experiment_as_in_memory(tmp_path: Path) -> None:
    stored = Experiment(dataset=npz_file(tmp_path / "x.npz"), model="mlp", **QUICK)
    history = fedadb.run(stored, tmp_path / "stored")
    assert (
        history.accuracy == fedadb.run(Experiment(dataset=data(), **QUICK), tmp_path / "m").accuracy
    )
    default = Experiment(dataset=npz_file(tmp_path / "x.npz"), **QUICK)
    with pytest.raises(BadInput, match=r"lenet takes .* have the shape 6; model = 'mlp' takes any"):
        fedadb.run(default, tmp_path / "default")
    assert not (tmp_path / "default").exists()


@pytest.mark.integration
def test_analyses_of_vectors_work_or_say_why_not(tmp_path: Path) -> None:
    e = Experiment(dataset=csv_file(tmp_path / "t.csv"), **{**QUICK, "keep_broadcasts": (1, 3)})
    fedadb.run(e, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert kept_anchors(tmp_path / "run") == []  # there are no pictures to show
    for name in ANALYSES:
        module = module_of(name)
        if name == "psnr":
            with pytest.raises(BadInput, match="psnr needs images, and these inputs have the"):
                module.require(run, Options())
            continue
        module.require(run, Options())
        numbers = module.measure(run, Options())
        module.draw({"run": numbers}, run.spec.classes)
    with pytest.raises(BadInput, match="an exported model needs images, and these inputs have"):
        export_run(tmp_path / "run", tmp_path / "model.safetensors")


def test_data_of_the_wrong_kind_are_named() -> None:
    with pytest.raises(BadInput, match=r"give a name, or in Python fedadb\.Data"):
        Experiment(dataset=torch.zeros(3, 3))
    with pytest.raises(BadInput, match="your own data are csv:PATH, npz:PATH or folder:PATH"):
        Experiment(dataset="parquet:x")
    with pytest.raises(BadInput, match="your own data are csv:PATH, npz:PATH or folder:PATH"):
        Experiment(dataset="csv:")


@pytest.mark.integration
def test_the_command_line_runs_on_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    csv_file(tmp_path / "patients.csv")
    quick = ("--set", "rounds=2", "--set", "local.epochs=1", "--set", "engine.workers=1")
    done = invoke("run", "--set", "dataset=csv:patients.csv", *quick, "--out", "run")
    assert done.code == 0, done.err
    assert invoke("run", "run/experiment.toml", "--out", "run").code == 0
    assert invoke("report", "run", "--out", "report").code == 0
    assert invoke("analyse", "run", "heatmap").code == 0
    shown = invoke("partition", "--set", "dataset=csv:patients.csv#label", "--out", "p.png")
    assert shown.code == 0, shown.err
    assert (tmp_path / "p.png").exists()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["dataset=csv:patients.csv#diagnosis"], "patients.csv has no column 'diagnosis'; its"),
        (["dataset=csv:none.csv"], "none.csv does not exist"),
        (["dataset=csv:bad.csv"], "bad.csv: row 3, column 'a': nan is not a finite number"),
        (["dataset=csv:patients.csv", "model=lenet"], "model = 'mlp' takes any"),
        (["dataset=vectors:x@12"], "use Python, and pass the same fedadb.Data"),
        (["model=own_nets:Net", "model.wide=3"], "model.wide is not a setting of own_nets:Net"),
        (["model=own_nets:square"], "model = 'own_nets:square': must return an nn.Module, not int"),
    ],
)
def test_wrong_input_ends_with_code_2_and_writes_nothing(
    settings: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    csv_file(tmp_path / "patients.csv")
    (tmp_path / "bad.csv").write_text("a,label\n1,x\nnan,y\n")
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n"
        "    def __init__(self, width=3):\n        pass\n"
        "def square():\n    return 4\n"
    )
    words = [word for setting in settings for word in ("--set", setting)]
    ended = invoke("run", *words, "--set", "rounds=1", "--out", "run")
    assert ended.code == 2
    assert message in " ".join(ended.err.split())
    assert not (tmp_path / "run").exists()
