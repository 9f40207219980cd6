"""Exported files: they contain the run's classifier and nothing else; what is refused."""

import json
import re
import shutil
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
from fedadb.engine.evaluate import evaluate
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.experiment.stored import read_run
from fedadb.export import onnx_file
from fedadb.export.classifier import card_from_strings
from fedadb.export.export_run import calibration_batches, export_run
from fedadb.export.predict import read_model
from fedadb.export.safetensors_file import read_safetensors
from fedadb.storage.records import privacy_statement, read_records
from fedadb.storage.tensorfile import read_tensors, write_tensors
from tests.datasets.official import pixels
from tests.export.conftest import Command, ExportedFiles

# One worker makes the exported files for all tests.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("export")]


def recorded_accuracy(directory: Path) -> float:
    accuracy: float = read_records(directory / "rounds.jsonl")[-1]["accuracy"]
    return accuracy


def accuracy_of(file: Path) -> float:
    test = datasets.load("digits").test
    likeliest = read_model(file).probabilities((test.x / 255).numpy()).argmax(1)
    return float((likeliest == test.y.numpy()).mean())


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_the_file_predicts_what_the_run_predicts(ending: str, two_heads: ExportedFiles) -> None:
    file: Path = getattr(two_heads, ending)
    assert accuracy_of(file) == recorded_accuracy(two_heads.run)
    stored = read_run(two_heads.run)
    test = stored.require_data().test
    with torch.no_grad():
        x = stored.spec.transform.normalise(test.x)
        expected = stored.f(stored.w, x).logits.softmax(1)
    model = read_model(file)
    actual = model.probabilities((test.x / 255).numpy())
    np.testing.assert_allclose(actual, expected.numpy(), atol=1e-5)
    assert model.card.classes == tuple("0123456789")
    assert model.card.shape == (1, 28, 28)
    assert (model.card.mean, model.card.std) == ((0.5,), (0.5,))
    assert model.card.experiment == stored.experiment.toml()


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("name", ["two_heads", "frozen"])
def test_both_formats_agree_on_any_number_of_images(
    name: str, size: int, request: pytest.FixtureRequest
) -> None:
    files: ExportedFiles = request.getfixturevalue(name)
    images = np.random.default_rng(size).random((size, 1, 28, 28), dtype=np.float32)
    one, other = (read_model(file) for file in (files.safetensors, files.onnx))
    together = one.probabilities(images)
    np.testing.assert_allclose(together, other.probabilities(images), atol=1e-5)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-5)
    alone = np.concatenate([one.probabilities(image[None]) for image in images])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_the_file_contains_only_the_deployed_head(two_heads: ExportedFiles) -> None:
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


def test_an_onnx_file_follows_the_standard(two_heads: ExportedFiles) -> None:
    proto = onnx.load(two_heads.onnx)
    onnx.checker.check_model(proto)
    (images,), (probabilities,) = proto.graph.input, proto.graph.output
    assert (images.name, probabilities.name) == ("images", "probabilities")
    shape = [d.dim_param or d.dim_value for d in images.type.tensor_type.shape.dim]
    assert shape == ["batch", 1, 28, 28]
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(metadata["classes"]) == list("0123456789")
    assert card_from_strings(metadata, two_heads.onnx).shape == (1, 28, 28)
    assert b".py" not in two_heads.onnx.read_bytes()  # no paths of source files


def test_two_exports_of_a_run_are_bit_identical(two_heads: ExportedFiles, tmp_path: Path) -> None:
    for file in (two_heads.safetensors, two_heads.onnx):
        export_run(two_heads.run, tmp_path / file.name)
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_an_onnx_file_with_other_predictions_is_not_written(
    two_heads: ExportedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, model = read_safetensors(two_heads.safetensors)
    content = two_heads.onnx.read_bytes()
    monkeypatch.setattr(onnx_file, "_trace", lambda model, card: content)
    target = tmp_path / "m.onnx"
    onnx_file.write_onnx(target, model, card)
    before = target.read_bytes()
    with torch.no_grad():
        model.head.get_parameter("bias")[3] += 1e-3
    with pytest.raises(
        Fault, match=r"m.onnx is not written: .* for 1 random images differ by up to"
    ):
        onnx_file.write_onnx(target, model, card)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_batch_statistics_must_be_frozen(
    ending: str, frozen: ExportedFiles, tmp_path: Path, fedadb: Command
) -> None:
    code, _, err = fedadb("export", frozen.run, "--to", tmp_path / f"m.{ending}")
    assert (code, err.count("\n")) == (2, 1)
    assert "would depend on the other images in its batch; freeze the statistics with --f" in err
    assert not list(tmp_path.glob("m*"))


def test_freezing_shows_the_accuracy_before_and_after(
    frozen: ExportedFiles, tmp_path: Path, fedadb: Command
) -> None:
    again = tmp_path / "again.safetensors"
    code, out, err = fedadb("export", frozen.run, "--to", again, "--freeze-statistics", 500)
    assert (code, err) == (0, "")
    numbers = [float(number) for number in re.findall(r"0\.\d{4}", out)]
    expected = [recorded_accuracy(frozen.run), accuracy_of(frozen.safetensors)]
    assert numbers == pytest.approx(expected, abs=1e-4)
    assert again.read_bytes() == frozen.safetensors.read_bytes()
    assert read_model(again).card.frozen == 500
    assert "head.norm.running_var" in load_file(again)


def test_statistics_come_from_training_images_without_augmentation(frozen: ExportedFiles) -> None:
    stored = read_run(frozen.run)
    batches = calibration_batches(stored, 70)
    assert [len(batch) for batch in batches] == [24, 23, 23]  # at most 32
    rows = {row.tobytes() for row in stored.require_data().train.x.numpy()}
    used = [(255 * image).round().byte().numpy().tobytes() for image in torch.cat(batches)]
    assert rows.issuperset(used)
    assert len(set(used)) == 70
    with pytest.raises(BadInput, match="--freeze-statistics 1439: must be from 2 to 1438"):
        calibration_batches(stored, 1439)


def test_constants_are_those_of_the_run(frozen: ExportedFiles) -> None:
    of_run = load_file(frozen.run / "model.safetensors")
    assert torch.equal(load_file(frozen.safetensors)["head.M"], of_run["heads.head.M"])


def test_a_stored_run_has_its_own_constants(frozen: ExportedFiles, tmp_path: Path) -> None:
    for name in ("experiment.toml", "model.safetensors", "rounds.jsonl"):
        (tmp_path / name).write_bytes((frozen.run / name).read_bytes())
    path = tmp_path / "model.safetensors"
    tensors, metadata = read_tensors(path, "")
    tensors["heads.head.M"] = -tensors["heads.head.M"]
    write_tensors(path, tensors, metadata)
    stored = read_run(tmp_path)
    w, test = stored.w, stored.require_data().test
    assert torch.equal(stored.f.constants()["heads.head.M"], tensors["heads.head.M"])
    other = evaluate(stored.f, w, test, stored.spec.transform, 32).accuracy
    assert other < recorded_accuracy(frozen.run)


def test_data_with_other_classes_than_in_the_run_are_refused(tmp_path: Path) -> None:
    def write(*classes: str) -> None:
        x, y = pixels(200, 28, 28), np.arange(200) % 2
        np.savez(tmp_path / "a.npz", x=x, y=y, classes=np.array(classes))

    write("cat", "dog")
    table = {"dataset": f"npz:{tmp_path / 'a.npz'}", "rounds": 1, "algorithm": "fedavg"}
    run(Experiment.read(table), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "m.safetensors")
    assert read_model(tmp_path / "m.safetensors").card.classes == ("cat", "dog")
    write("dog", "cat")
    with pytest.raises(BadInput, match="its data have other classes now than in the run"):
        export_run(tmp_path / "run", tmp_path / "m.safetensors")


def test_own_code_needs_onnx_and_is_never_imported_by_predict(
    two_heads: ExportedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedadb: Command
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
    assert (code, "beside_export:Mine is your own code" in err) == (2, True)
    assert not Path("m.safetensors").exists()
    tensors, metadata = read_tensors(two_heads.safetensors, "")
    experiment = metadata["experiment"].replace('"fedadb"', '"never_imported:Mine"')
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    write_tensors(tmp_path / "m.safetensors", tensors, metadata | {"experiment": experiment})
    code, _, err = fedadb("predict", "m.safetensors", "m.png")
    assert (code, "m.safetensors needs never_imported:Mine, which is not" in err) == (2, True)


def test_the_code_of_a_foreign_run_is_not_imported(
    two_heads: ExportedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedadb: Command
) -> None:
    """`fedadb export .` in a directory that somebody else wrote."""
    foreign = tmp_path / "foreign"
    shutil.copytree(two_heads.run, foreign)
    (foreign / "planted.py").write_text("import pathlib; pathlib.Path('mark').touch()")
    experiment = foreign / "experiment.toml"
    experiment.write_text(experiment.read_text().replace('"fedadb"', '"planted:Mine"'))
    monkeypatch.chdir(foreign)
    for words in (("export", ".", "--to", tmp_path / "m.onnx"), ("analyse", ".", "heatmap")):
        code, _, err = fedadb(*words)
        assert (code, "'planted:Mine': cannot be imported" in err) == (2, True)
    assert not Path("mark").exists()
    fedadb("export", ".", "--to", tmp_path / "m.onnx", "--code", ".")
    assert Path("mark").exists()  # as asked for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--to", "m.pt"], "--to m.pt: must end in .safetensors or .onnx"),
        (["RUN", "--to", "m"], "--to m: must end in .safetensors or .onnx"),
        (
            ["RUN", "--to", "no/m.onnx"],
            "--to no/m.onnx: the directory no does not exist; create it first",
        ),
        (["RUN", "--to", "d.onnx"], "--to d.onnx: is a directory; name a file"),
        (["RUN", "--to", "RUN/model.safetensors"], "is the directory of a run; choose another one"),
        (
            ["RUN", "--to", "RUN/checkpoint.safetensors"],
            "is the directory of a run; choose another one",
        ),
        (["d.onnx", "--to", "m.onnx"], "d.onnx is not a run: it has no experiment.toml"),
        (["nowhere", "--to", "m.onnx"], "nowhere is not a run: it has no experiment.toml"),
        (["half", "--to", "m.onnx"], "half is not finished: it has no model.safetensors yet"),
        (
            ["RUN", "--to", "m.safetensors", "--freeze-statistics", "9"],
            "has no batch statistics; omit the option",
        ),
    ],
)
def test_wrong_arguments_of_export_are_one_sentence_and_exit_2(
    arguments: list[str],
    message: str,
    two_heads: ExportedFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fedadb: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.onnx").mkdir()
    Path("half").mkdir()
    Path("half/experiment.toml").touch()
    before = {path: path.read_bytes() for path in two_heads.run.glob("*.safetensors")}
    code, _, err = fedadb("export", *(a.replace("RUN", str(two_heads.run)) for a in arguments))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("fedadb: ")
    assert message in err
    assert not list(tmp_path.glob("m*"))
    assert {path: path.read_bytes() for path in two_heads.run.glob("*.safetensors")} == before


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
def test_a_damaged_file_is_refused(
    ending: str, two_heads: ExportedFiles, tmp_path: Path, fedadb: Command
) -> None:
    intact = getattr(two_heads, ending).read_bytes()
    middle = len(intact) // 2
    flipped = intact[:middle] + bytes([intact[middle] ^ 1]) + intact[middle + 1 :]
    file = tmp_path / f"m.{ending}"
    for content in (flipped, intact[:-1000], intact[:10], b"", b"no model"):
        file.write_bytes(content)
        code, _, err = fedadb("predict", file, "m.png")
        assert (code, err.count("\n")) == (1, 1), err
        assert "damaged" in err
        assert "export it again" in err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("m.txt", "m.txt is not an exported model: it must end in .safetensors or .onnx"),
        ("no.onnx", "no.onnx does not exist"),
        ("RUN", "is a directory; export the model of a run with `fedadb export "),
        (
            "RUN/model.safetensors",
            "contains the weights of a run; make a usable model of them with `fedadb export",
        ),
        ("other.safetensors", "other.safetensors was not written by `fedadb export`"),
        ("other.onnx", "other.onnx was not written by `fedadb export`"),
    ],
)
def test_files_that_are_not_exported_models_are_refused(
    model: str,
    message: str,
    two_heads: ExportedFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fedadb: Command,
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


def test_missing_packages_are_reported_first(
    two_heads: ExportedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedadb: Command
) -> None:
    for package in ("onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    code, _, err = fedadb("export", two_heads.run, "--to", tmp_path / "m.onnx")
    need = "fedadb: ONNX files need `pip install"
    assert (code, err) == (2, f"{need} onnx onnxscript onnxruntime`\n")
    code, _, err = fedadb("predict", two_heads.onnx, tmp_path)
    assert (code, err) == (2, f"{need} onnxruntime`\n")


def test_the_command_line_starts_without_torch() -> None:
    program = "import sys, fedadb.cli; print({'torch', 'onnx', 'numpy'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_the_card_of_a_private_run_has_its_promise(tmp_path: Path) -> None:
    table = {
        "rounds": 1,
        "algorithm": "fedavg",
        "model": {"name": "lenet"},
        "local": {"epochs": 1},
        "federation": {"clients": 20, "participation": 0.1, "sampling": "poisson"},
        "filter": [{"name": "dp", "norm": 0.02, "noise": 1.0}],
        "engine": {"workers": 1},
    }
    run(Experiment.read(table), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "m.safetensors")
    promise = privacy_statement(read_records(tmp_path / "run" / "rounds.jsonl")[-1])
    assert promise.endswith("simulated: no guarantee")
    assert read_model(tmp_path / "m.safetensors").card.privacy == promise
    with pytest.raises(BadInput, match="contains the weights of a run"):
        read_model(tmp_path / "run" / "model.safetensors")
    with pytest.raises(BadInput, match="statistics of training images are not differentially"):
        export_run(tmp_path / "run", tmp_path / "m.safetensors", images=500)


def test_a_card_of_an_earlier_version_promises_nothing(two_heads: ExportedFiles) -> None:
    card, _ = read_safetensors(two_heads.safetensors)
    strings = card.to_strings()
    assert strings.pop("privacy") == '""'
    assert card_from_strings(strings, two_heads.safetensors) == card
