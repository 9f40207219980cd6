"""A run's model in one file: that it is the run's, whole and alone, and what is refused."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedadb import datasets
from fedadb.core.errors import BadInput, Fault
from fedadb.storage.records import read_records
from fedadb.engine.evaluate import evaluate
from fedadb.storage.tensorfile import read_tensors, write_tensors
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import read_run
from fedadb.experiment.run import run
from fedadb.export import onnxfile, weights
from fedadb.export.card import read_card
from fedadb.export.predict import read_model
from fedadb.export.write import calibration, export
from tests.datasets.official import pixels
from tests.export.conftest import Fedadb, Files

pytestmark = pytest.mark.integration


def recorded(directory: Path) -> float:
    accuracy: float = read_records(directory / "rounds.jsonl")[-1]["accuracy"]
    return accuracy


def accuracy_of(file: Path) -> float:
    test = datasets.load("digits").test
    likeliest = read_model(file).probabilities((test.x / 255).numpy()).argmax(1)
    return float((likeliest == test.y.numpy()).mean())


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_the_file_knows_what_the_run_knew(ending: str, two_heads: Files) -> None:
    file: Path = getattr(two_heads, ending)
    assert accuracy_of(file) == recorded(two_heads.run)
    experiment, world, w = read_run(two_heads.run)
    with torch.no_grad():
        expected = world.f(w, world.transform.normalise(world.test.x)).logits.softmax(1)
    model = read_model(file)
    found = model.probabilities((world.test.x / 255).numpy())
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    assert model.card.classes == tuple("0123456789")
    assert model.card.shape == (1, 28, 28)
    assert (model.card.mean, model.card.std) == ((0.5,), (0.5,))
    assert model.card.experiment == experiment.toml()


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("name", ["two_heads", "frozen"])
def test_both_formats_agree_on_any_number_of_images(
    name: str, size: int, request: pytest.FixtureRequest
) -> None:
    files: Files = request.getfixturevalue(name)
    images = np.random.default_rng(size).random((size, 1, 28, 28), dtype=np.float32)
    one, other = (read_model(file) for file in (files.safetensors, files.onnx))
    found = one.probabilities(images)
    np.testing.assert_allclose(found, other.probabilities(images), atol=1e-5)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    alone = np.concatenate([one.probabilities(image[None]) for image in images])
    np.testing.assert_allclose(found, alone, atol=1e-5)


def test_only_the_deployed_head_is_there(two_heads: Files) -> None:
    of_run, of_file = (
        load_file(two_heads.run / "model.safetensors"),
        load_file(two_heads.safetensors),
    )
    assert torch.equal(of_file["head.weight"], of_run["heads.A.weight"])
    assert not torch.equal(of_file["head.weight"], of_run["heads.L.weight"])
    assert {name for name in of_run if name.startswith("body")} | {"head.weight", "head.bias"} == (
        of_file.keys()
    )
    shapes = [i.dims for i in onnx.load(two_heads.onnx).graph.initializer]
    assert sum(list(shape) in ([10, 84], [84, 10]) for shape in shapes) == 1


def test_an_onnx_file_is_plain_onnx(two_heads: Files) -> None:
    proto = onnx.load(two_heads.onnx)
    onnx.checker.check_model(proto)
    (images,), (probabilities,) = proto.graph.input, proto.graph.output
    assert (images.name, probabilities.name) == ("images", "probabilities")
    shape = [d.dim_param or d.dim_value for d in images.type.tensor_type.shape.dim]
    assert shape == ["batch", 1, 28, 28]
    told = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(told["classes"]) == list("0123456789")
    assert read_card(told, two_heads.onnx).shape == (1, 28, 28)
    assert b".py" not in two_heads.onnx.read_bytes()  # nothing about whose code made it


def test_the_same_run_gives_the_same_bytes(two_heads: Files, tmp_path: Path) -> None:
    for file in (two_heads.safetensors, two_heads.onnx):
        export(two_heads.run, tmp_path / file.name, None)
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_an_onnx_file_that_computes_something_else_is_not_written(
    two_heads: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, model = weights.read(two_heads.safetensors)
    content = two_heads.onnx.read_bytes()
    monkeypatch.setattr(onnxfile, "_traced", lambda model, card: content)
    target = tmp_path / "m.onnx"
    onnxfile.write(target, model, card)
    before = target.read_bytes()
    with torch.no_grad():
        model.head.get_parameter("bias")[3] += 1e-3
    with pytest.raises(Fault, match=r"m.onnx is not written: .* for 1 random images are up to"):
        onnxfile.write(target, model, card)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_batch_statistics_are_refused(
    ending: str, frozen: Files, tmp_path: Path, fedadb: Fedadb
) -> None:
    code, _, err = fedadb("export", frozen.run, "--to", tmp_path / f"m.{ending}")
    assert (code, err.count("\n")) == (2, 1)
    assert "would depend on the images beside it; fix the statistics with --freeze-st" in err
    assert not list(tmp_path.glob("m*"))


def test_frozen_statistics_are_told_with_what_they_cost(
    frozen: Files, tmp_path: Path, fedadb: Fedadb
) -> None:
    again = tmp_path / "again.safetensors"
    code, out, err = fedadb("export", frozen.run, "--to", again, "--freeze-statistics", 500)
    assert (code, err) == (0, "")
    numbers = [float(number) for number in re.findall(r"0\.\d{4}", out)]
    expected = [recorded(frozen.run), accuracy_of(frozen.safetensors)]
    assert numbers == pytest.approx(expected, abs=1e-4)
    assert again.read_bytes() == frozen.safetensors.read_bytes()
    assert read_model(again).card.frozen == 500
    assert "head.norm.running_var" in load_file(again)


def test_statistics_come_from_training_images_as_they_are(frozen: Files) -> None:
    run_ = read_run(frozen.run)
    batches = calibration(run_, 70)
    assert [len(batch) for batch in batches] == [24, 23, 23]  # of at most 32
    rows = {row.tobytes() for row in run_.world.shards[0].examples.x.numpy()}
    seen = [(255 * image).round().byte().numpy().tobytes() for image in torch.cat(batches)]
    assert rows.issuperset(seen)
    assert len(set(seen)) == 70
    with pytest.raises(BadInput, match="--freeze-statistics 1439: must be from 2 to 1438"):
        calibration(run_, 1439)


def test_constants_are_those_of_the_run(frozen: Files) -> None:
    of_run = load_file(frozen.run / "model.safetensors")
    assert torch.equal(load_file(frozen.safetensors)["head.M"], of_run["heads.head.M"])


def test_a_run_is_read_as_it_was_written(frozen: Files, tmp_path: Path) -> None:
    for name in ("experiment.toml", "model.safetensors", "rounds.jsonl"):
        (tmp_path / name).write_bytes((frozen.run / name).read_bytes())
    path = tmp_path / "model.safetensors"
    tensors, about = read_tensors(path, "")
    tensors["heads.head.M"] = -tensors["heads.head.M"]
    write_tensors(path, tensors, about)
    _, world, w = read_run(tmp_path)
    assert torch.equal(world.f.constants()["heads.head.M"], tensors["heads.head.M"])
    other = evaluate(world.f, w, world.test, world.transform, 32).accuracy
    assert other < recorded(frozen.run)


def test_data_of_other_classes_are_noticed(tmp_path: Path) -> None:
    def write(*classes: str) -> None:
        x, y = pixels(200, 28, 28), np.arange(200) % 2
        np.savez(tmp_path / "a.npz", x=x, y=y, classes=np.array(classes))

    write("cat", "dog")
    table = {"dataset": f"npz:{tmp_path / 'a.npz'}", "rounds": 1, "algorithm": "fedavg"}
    run(Experiment.read(table), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "m.safetensors", None)
    assert read_model(tmp_path / "m.safetensors").card.classes == ("cat", "dog")
    write("dog", "cat")
    with pytest.raises(BadInput, match="are not those of the run any more"):
        export(tmp_path / "run", tmp_path / "m.safetensors", None)


def test_code_of_ones_own_is_neither_lost_nor_imported(
    two_heads: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedadb: Fedadb
) -> None:
    (tmp_path / "beside_export.py").write_text(
        "from fedadb.algorithms.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, _ = fedadb(
        *("run", "--set", "algorithm=beside_export:Mine", "--set", "rounds=1", "--out", "run")
    )
    assert code == 0
    code, _, err = fedadb("export", "run", "--to", "m.safetensors")
    assert (code, "beside_export:Mine is code of your own" in err) == (2, True)
    assert not Path("m.safetensors").exists()
    tensors, about = read_tensors(two_heads.safetensors, "")
    experiment = about["experiment"].replace('"fedadb"', '"never_imported:Mine"')
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    write_tensors(tmp_path / "m.safetensors", tensors, about | {"experiment": experiment})
    code, _, err = fedadb("predict", "m.safetensors", "m.png")
    assert (code, "m.safetensors needs never_imported:Mine, which is not" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "--to", "m.pt"], "--to m.pt: must end in .safetensors or .onnx"),
        (["RUN", "--to", "m"], "--to m: must end in .safetensors or .onnx"),
        (["RUN", "--to", "no/m.onnx"], "--to no/m.onnx: there is no directory no; make it first"),
        (["RUN", "--to", "d.onnx"], "--to d.onnx: is a directory; name a file"),
        (["RUN", "--to", "RUN/model.safetensors"], "lies among a run's own files"),
        (["RUN", "--to", "RUN/checkpoint.safetensors"], "lies among a run's own files"),
        (["d.onnx", "--to", "m.onnx"], "d.onnx is not a run: there is no experiment.toml in it"),
        (["nowhere", "--to", "m.onnx"], "nowhere is not a run: there is no experiment.toml in it"),
        (["half", "--to", "m.onnx"], "half is not finished: there is no model.safetensors yet"),
        (
            ["RUN", "--to", "m.safetensors", "--freeze-statistics", "9"],
            "has none; leave it out",
        ),
    ],
)
def test_wrong_exports_are_one_sentence_and_exit_2(
    words: list[str],
    message: str,
    two_heads: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fedadb: Fedadb,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.onnx").mkdir()
    Path("half").mkdir()
    Path("half/experiment.toml").touch()
    kept = {path: path.read_bytes() for path in two_heads.run.glob("*.safetensors")}
    code, _, err = fedadb("export", *(word.replace("RUN", str(two_heads.run)) for word in words))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("fedadb: ")
    assert message in err
    assert not list(tmp_path.glob("m*"))
    assert {path: path.read_bytes() for path in two_heads.run.glob("*.safetensors")} == kept


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_damage_is_noticed(ending: str, two_heads: Files, tmp_path: Path, fedadb: Fedadb) -> None:
    whole = getattr(two_heads, ending).read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file = tmp_path / f"m.{ending}"
    for content in (flipped, whole[:-1000], whole[:10], b"", b"no model"):
        file.write_bytes(content)
        code, _, err = fedadb("predict", file, "m.png")
        assert (code, err.count("\n")) == (1, 1), err
        assert "damaged" in err
        assert "export it anew" in err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("m.txt", "m.txt is no exported model: those end in .safetensors or .onnx"),
        ("no.onnx", "no.onnx does not exist"),
        ("RUN", "is a directory; `fedadb export` makes the model of a run's directory a file"),
        ("RUN/model.safetensors", "is the model of a run, as the run keeps it; `fedadb export"),
        ("other.safetensors", "other.safetensors is not a model that `fedadb export` wrote"),
        ("other.onnx", "other.onnx is not a model that `fedadb export` wrote"),
    ],
)
def test_what_is_no_exported_model_is_refused(
    model: str,
    message: str,
    two_heads: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fedadb: Fedadb,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.txt").touch()
    save_file({"weight": torch.zeros(3)}, "other.safetensors")
    proto = onnx.load(two_heads.onnx)
    del proto.metadata_props[:]
    onnx.save(proto, "other.onnx")
    code, _, err = fedadb("predict", model.replace("RUN", str(two_heads.run)), "m.png")
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_what_is_not_installed_is_told_before_the_work(
    two_heads: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedadb: Fedadb
) -> None:
    for package in ("onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    code, _, err = fedadb("export", two_heads.run, "--to", tmp_path / "m.onnx")
    need = "fedadb: ONNX files need `pip install"
    assert (code, err) == (2, f"{need} onnx onnxscript onnxruntime`\n")
    code, _, err = fedadb("predict", two_heads.onnx, tmp_path)
    assert (code, err) == (2, f"{need} onnxruntime`\n")


def test_help_is_quick() -> None:
    program = "import sys, fedadb.cli; print({'torch', 'onnx', 'numpy'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
