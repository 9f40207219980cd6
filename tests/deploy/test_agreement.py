"""What a site has: its images, read for the federation's task, and what it remembers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from PIL import Image

from fedadb.core.errors import BadInput
from fedadb.core.task import Task
from fedadb.core.transform import Transform
from fedadb.deploy import remembered
from fedadb.deploy.remembered import InDirectory, InState, Remembered
from fedadb.deploy.site_data import load
from fedadb.deploy.task import require_same, settings, task_of
from fedadb.experiment.config import Experiment

TASK = Task(("cat", "dog", "owl"), (1, 4, 4), Transform(mean=(0.5,), std=(0.5,)))


def npz(path: Path, labels: list[int], size: int = 4, **more: np.ndarray) -> str:
    x = np.zeros((len(labels), size, size), dtype=np.uint8)
    arrays: Any = {"x": x, "y": np.array(labels), **more}
    np.savez(path, **arrays)
    return f"npz:{path}"


def folder(path: Path, classes: list[str], n: int = 5, size: int = 4) -> str:
    for c, name in enumerate(classes):
        (path / name).mkdir(parents=True)
        for i in range(n):
            image = np.full((size, size), 10 * c + i, dtype=np.uint8)
            Image.fromarray(image).save(path / name / f"{i}.png")
    return f"folder:{path}"


def test_classes_are_matched_by_name_and_may_be_missing(tmp_path: Path) -> None:
    data = npz(tmp_path / "a.npz", [0] * 5 + [1] * 5, classes=np.array(["owl", "cat"]))
    train, test = load(data, TASK)
    assert sorted(train.y.tolist()) == [0] * 4 + [2] * 4
    assert sorted(test.y.tolist()) == [0, 2]
    train, test = load(folder(tmp_path / "images", ["dog", "owl"], size=9), TASK)
    assert train.x.shape[1:] == (1, 4, 4)  # files are made to the federation's size
    assert sorted(train.y.tolist()) == [1] * 4 + [2] * 4
    dogs = train.x[train.y == 1]
    assert int(dogs.max()) < 10  # the pixels went with their labels


def test_labels_without_names_are_the_federations(tmp_path: Path) -> None:
    train, _ = load(npz(tmp_path / "a.npz", [2] * 10), TASK)
    assert set(train.y.tolist()) == {2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: npz(p / "a.npz", [0, 3]), "label 3 is out of range"),
        (
            lambda p: npz(p / "a.npz", [0, 1], classes=np.array(["cat", "bat"])),
            "has a class 'bat' that the federation does not know: cat, dog, owl",
        ),
        (lambda p: folder(p / "f", ["cat", "bat"]), "has a class 'bat' that the federation"),
        (
            lambda p: npz(p / "a.npz", [0] * 4, size=5),
            r"has images of shape \(1, 5, 5\); the federation's are \(1, 4, 4\)",
        ),
        (lambda p: f"folder:{p / 'nowhere'}", "does not exist"),
        (lambda p: "csv:x", "must be npz:PATH or folder:PATH"),
        (lambda p: "npz:", "must be npz:PATH or folder:PATH"),
    ],
)
def test_data_that_do_not_fit(make: object, message: str, tmp_path: Path) -> None:
    assert callable(make)
    data = make(tmp_path)
    with pytest.raises(BadInput, match=message):
        load(data, TASK)


def test_the_task_survives_its_journey() -> None:
    assert Task.read(json.loads(json.dumps(TASK.table()))) == TASK


def test_a_server_without_data_says_what_is_seen() -> None:
    own = {"classes": ["a", "b"], "shape": [3, 32, 32], "evaluate": "sites"}
    task, splits = task_of(Experiment.read({"deployment": own}))
    assert (task.classes, task.shape, splits) == (("a", "b"), (3, 32, 32), None)
    with pytest.raises(BadInput, match="needs both classes and shape"):
        task_of(Experiment.read({"deployment": {"classes": ["a", "b"], "evaluate": "sites"}}))
    with pytest.raises(BadInput, match="a server without data cannot; use 'sites'"):
        task_of(Experiment.read({"deployment": {**own, "evaluate": "server"}}))


def test_only_what_a_site_computes_has_to_be_the_same() -> None:
    one = Experiment.read({"dataset": "digits", "engine": {"workers": 1}})
    other = Experiment.read({"dataset": "digits", "deployment": {"wait": 1.0}})
    require_same(settings(one), settings(other))
    another = Experiment.read({"dataset": "digits", "seed": 4})
    with pytest.raises(BadInput, match="seed is 4 there and 0 here"):
        require_same(settings(one), settings(another))


@pytest.fixture(params=["directory", "state"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Remembered:
    return (
        InDirectory(tmp_path, "0" * 32) if request.param == "directory" else InState(RecordDict())
    )


def test_what_was_known_after_the_last_round_that_was_used_is_kept(store: Remembered) -> None:
    assert store.get(0) is None
    remembered.keep(store, 0, 1, b"one")
    remembered.keep(store, 1, 4, b"four")  # which is dropped by the server
    remembered.keep(store, 1, 5, b"five")
    assert dict(store) == {1: b"one", 5: b"five"}
    remembered.keep(store, 5, 6, b"six")
    remembered.keep(store, 5, 6, b"six again")
    assert dict(store) == {5: b"five", 6: b"six again"}


def test_a_run_cannot_be_called_like_a_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no name of a run"):
        InDirectory(tmp_path, "../../etc")
