"""`rounds` and `simulate`: runs from Python, round by round or without a directory."""

import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import fedadb
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.storage.records import Record, read_records

pytestmark = pytest.mark.integration

SETTINGS: dict[str, Any] = {"rounds": 4, "local": {"epochs": 1}}
TABLE = {**SETTINGS, "algorithm": "fedavg"}
SHORT = Experiment.read(TABLE)
ON_WORKERS = Experiment.read({**TABLE, "engine": {"workers": 2}})


def without_times(records: list[Record]) -> list[Record]:
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in records]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> fedadb.History:
    return fedadb.run(SHORT, tmp_path_factory.mktemp("history") / "run")


# rounds


def test_a_record_is_yielded_as_soon_as_it_is_saved(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for t, record in enumerate(fedadb.rounds(SHORT, out), 1):
        saved = read_records(out / "rounds.jsonl")
        assert len(saved) == t
        assert saved[-1] == record
        assert not (out / "model.safetensors").exists()
    assert (out / "model.safetensors").exists()


@pytest.mark.parametrize("experiment", [SHORT, ON_WORKERS], ids=["one process", "workers"])
def test_a_loop_that_is_left_releases_everything_and_resumes(
    experiment: Experiment, history: fedadb.History, tmp_path: Path
) -> None:
    out, threads = tmp_path / "run", torch.get_num_threads()
    before = set(multiprocessing.active_children())
    rounds = fedadb.rounds(experiment, out)
    first = [next(rounds), next(rounds)]
    with pytest.raises(BadInput, match="another process"):  # it is locked while it is active
        fedadb.run(experiment, out)
    rounds.close()
    assert set(multiprocessing.active_children()) == before
    assert torch.get_num_threads() == threads
    again = list(fedadb.rounds(experiment, out))
    assert again[:2] == first
    assert without_times(again) == without_times(history.rounds)
    assert list(fedadb.rounds(experiment, out)) == again  # a finished run has all its records


def test_an_error_in_the_loop_releases_everything(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())

    def train() -> None:
        for record in fedadb.rounds(ON_WORKERS, tmp_path / "run"):
            raise RuntimeError(f"round {record['round']}")

    with pytest.raises(RuntimeError, match="round 1"):
        train()
    assert set(multiprocessing.active_children()) == before
    assert len(fedadb.run(ON_WORKERS, tmp_path / "run").rounds) == 4


def test_the_default_directory_is_that_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rounds = list(fedadb.rounds(SHORT))
    found = fedadb.run(SHORT)
    assert found.rounds == rounds
    assert found.directory.parent == Path("runs")


# simulate


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of temporary directories."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.mark.parametrize("algorithm", ["fedavg", fedadb.FedAvg(), {"name": "fedavg"}])
@pytest.mark.parametrize("model", ["lenet", fedadb.LeNet()])
def test_a_simulation_is_a_run_without_a_directory(
    algorithm: Any, model: Any, history: fedadb.History, temporary: Path
) -> None:
    simulated = fedadb.simulate(algorithm, model, "digits", **SETTINGS)
    assert without_times(simulated.rounds) == without_times(history.rounds)
    assert simulated.accuracy == history.accuracy
    ours, theirs = simulated.weights(), history.weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert list(temporary.iterdir()) == []
    with pytest.raises(BadInput, match="kept no directory; simulate"):
        _ = simulated.directory


def test_a_simulation_can_keep_its_directory(history: fedadb.History, tmp_path: Path) -> None:
    out = tmp_path / "run"
    simulated = fedadb.simulate("fedavg", "lenet", "digits", out=out, **SETTINGS)
    assert simulated.directory == out
    assert simulated == fedadb.run(SHORT, out)
    assert without_times(simulated.rounds) == without_times(history.rounds)


def test_a_simulation_that_fails_leaves_nothing(temporary: Path) -> None:
    def stop(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedadb.simulate("fedavg", "lenet", "digits", rounds=2, observers=[stop])
    with pytest.raises(BadInput, match="did you mean fedavg"):
        fedadb.simulate("fedav", "lenet", "digits")
    with pytest.raises(BadInput, match="roundz is not a setting; did you mean rounds"):
        fedadb.simulate("fedavg", "lenet", "digits", roundz=2)
    assert list(temporary.iterdir()) == []


# history


def test_weights_are_those_of_the_model_file(history: fedadb.History) -> None:
    from safetensors.torch import load_file

    expected = load_file(history.directory / "model.safetensors")
    found = history.weights()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
