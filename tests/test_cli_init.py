"""`fedadb init`, and settings that suit the size of the data."""

import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedadb.core.data import LocalPlan
from fedadb.experiment import sizes
from fedadb.experiment.config import Experiment
from tests.command_line import invoke


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_npz(name: str, rows: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    np.savez(name, x=rng.random((rows, *shape), dtype=np.float32), y=np.arange(rows) % 3)


def test_a_file_of_images() -> None:
    write_npz("cells.npz", 375, (1, 28, 28))
    ended = invoke("init", "cells.npz")
    assert ended.code == 0, ended.err
    # A fifth is for testing. 300 rows are 10 clients of 30, and 8 rows per batch are 4 batches.
    assert "300 training and 75 test rows of shape 1×28×28, 3 classes; 10 clients" in ended.out
    assert "Wrote experiment.toml. Next: fedadb run experiment.toml\n" in ended.out
    assert ended.out.endswith("fedadb compare experiment.toml --algorithms fedavg,fedadb\n")
    table = tomllib.loads(Path("experiment.toml").read_text())
    e = Experiment.read(table)
    assert table["dataset"] == f"npz:{Path('cells.npz').absolute()}"
    assert (e.rounds, e.federation.clients, e.local.batch_size) == (100, 10, 8)
    assert table["model"] == "lenet"
    assert "lr" not in table["local"], "each method has its own"
    text = Path("experiment.toml").read_text()
    assert "# passes over a client's rows in one round\nepochs = 5\n" in text
    assert "# lr = 0.01\n" in text


def test_a_table() -> None:
    lines = ["a,b,kind", *(f"{i % 7},{i % 5},{'xy'[i % 2]}" for i in range(100))]
    Path("rows.csv").write_text("\n".join(lines))
    assert invoke("init", "rows.csv").code == 2, "it has no column of labels"
    ended = invoke("init", "rows.csv#kind", "--out", "mine.toml")
    assert ended.code == 0, ended.err
    table = tomllib.loads(Path("mine.toml").read_text())
    assert table["dataset"] == f"csv:{Path('rows.csv').absolute()}#kind"
    assert table["model"] == "mlp"
    assert table["federation"]["clients"] == 2
    assert table["federation"]["participation"] == 1


def test_a_folder_of_images() -> None:
    for name in ("cat", "dog"):
        Path("pets", name).mkdir(parents=True)
        for i in range(40):
            Image.new("L", (30, 30), i).save(Path("pets", name, f"{i}.png"))
    ended = invoke("init", "pets")
    assert ended.code == 0, ended.err
    table = tomllib.loads(Path("experiment.toml").read_text())
    assert table["dataset"] == f"folder:{Path('pets').absolute()}"


def test_a_dataset_by_name_keeps_its_defaults() -> None:
    assert invoke("init", "digits").code == 0
    e = Experiment.read(tomllib.loads(Path("experiment.toml").read_text()))
    assert e == Experiment(dataset="digits")


def test_a_dataset_that_is_missing_is_to_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDADB_DATA", "nothing")
    ended = invoke("init", "svhn")
    assert ended.code == 0
    assert "Next: fedadb data fetch svhn" in ended.out


def test_what_is_wrong_is_said() -> None:
    assert "did you mean digits?" in invoke("init", "digitz").err
    assert "nowhere.csv does not exist" in invoke("init", "nowhere.csv").err
    Path("experiment.toml").write_text("mine")
    assert "exists; name another file" in invoke("init", "digits").err
    assert Path("experiment.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, 8), (30, 8), (64, 16), (72, 16), (410, 64), (512, 128), (9000, 128)]
)
def test_batches_by_size(rows: int, expected: int) -> None:
    assert sizes.batch_size_for(rows) == expected


def test_small_images_and_vectors_get_a_model_that_takes_them() -> None:
    for shape, model in (((1, 8, 8), "cnn"), ((3, 28, 28), "lenet"), ((20,), "mlp")):
        write_npz("data.npz", 150, shape)
        Path("experiment.toml").unlink(missing_ok=True)
        assert invoke("init", "data.npz").code == 0
        assert tomllib.loads(Path("experiment.toml").read_text())["model"] == model


def test_a_batch_of_all_rows_is_hinted_at(caplog: pytest.LogCaptureFixture) -> None:
    sizes._warn.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sizes.SizeWarning)
        for counts in ([[10, 5], [20, 0], [8, 7]], [[100, 70], [200, 0], [80, 90]]):
            sizes.warn_of_few_steps(LocalPlan(), counts)
    assert caplog.messages == [
        "local.batch_size = 128: half of the clients have 15 rows or fewer, so they take 5 steps "
        "per round and learn slowly; local.batch_size = 8 takes 10"
    ]


def test_the_command_shows_the_hint() -> None:
    sizes._warn.cache_clear()
    write_npz("data.npz", 375, (20,))
    words = ["--set", "dataset=npz:data.npz", "--set", "model=mlp", "--set", "rounds=1"]
    quick = ["--set", "local.epochs=1", "--set", "engine.workers=1", "--set", "algorithm=fedavg"]
    ended = invoke("run", *words, *quick, "--out", "run")
    assert ended.code == 0
    assert "fedadb: local.batch_size = 32: half of the clients have" in ended.err
    assert "SizeWarning" not in ended.err
