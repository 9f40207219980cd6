"""TensorBoard, MLflow and W&B have every round once, however often a run is interrupted."""

import importlib
import json
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import fedadb
from fedadb.cli import app
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.observation import Observer
from fedadb.experiment.run import start_run
from fedadb.observers import TRACKERS, make_trackers
from fedadb.observers.tracked_run import scalars
from fedadb.storage.records import read_records
from fedadb.storage.run_directory import ROUNDS, TRACKED
from tests.command_line import invoke

pytestmark = pytest.mark.integration

SHORT = Experiment.read(
    {
        "rounds": 4,
        "local": {"epochs": 1},
        "model": {"name": "mlp", "hidden": [16]},
        "algorithm": "fedavg",
        "engine": {"workers": 1},
    }
)
WORDS = ["--set", "rounds=3", "--set", "local.epochs=1", "--set", "model=mlp"]
PACKAGES = {name: name for name in TRACKERS}  # each tracker is named after its package


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow writes to the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def interrupted(out: Path, *observers: Observer) -> None:
    """Train one more round, as a process that is killed after it: no observer sees an end."""
    with start_run(SHORT, out, observers=observers) as active:
        next(active.rounds)


def recorded(out: Path, key: str = "accuracy") -> list[tuple[int, float]]:
    return [(r["round"], r[key]) for r in read_records(out / ROUNDS)]


# TensorBoard


def events(out: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(out / "tensorboard"))
    found.Reload()
    return found


def test_a_resumed_run_has_each_round_once_in_tensorboard(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted(out, fedadb.TensorBoard())
    interrupted(out)  # without it
    fedadb.run(SHORT, out, observers=[fedadb.TensorBoard()])
    found = events(out)
    shown = [(e.step, e.value) for e in found.Scalars("accuracy")]
    assert shown == [(t, pytest.approx(accuracy)) for t, accuracy in recorded(out)]
    assert "class_accuracy/9" in found.Tags()["scalars"]


# MLflow


def mlflow_client(uri: str | None = None) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri or Path("mlruns").absolute().as_uri())


def mlflow_runs(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("fedadb")
    return list(client.search_runs([experiment.experiment_id]))


def mlflow_steps(client: Any, run: str, key: str = "accuracy") -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(run, key)]


def test_a_resumed_run_continues_its_mlflow_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted(out, fedadb.MLflow())
    [first] = mlflow_runs(mlflow_client())
    assert first.info.status == "KILLED"
    interrupted(out)  # without it
    fedadb.run(SHORT, out, observers=[fedadb.MLflow()])
    fedadb.run(SHORT, out, observers=[fedadb.MLflow()])  # it is finished
    client = mlflow_client()
    [run] = mlflow_runs(client)
    assert run.info.run_id == first.info.run_id
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["local.lr"] == str(SHORT.local.lr)
    for key in ("accuracy", "loss", "lr"):
        assert mlflow_steps(client, run.info.run_id, key) == recorded(out, key)
    assert len(mlflow_steps(client, run.info.run_id, "class_accuracy/9")) == 4


def test_rounds_that_are_trained_again_are_once_in_mlflow(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with start_run(SHORT, out, observers=[fedadb.MLflow()]) as active:
        for _ in range(3):
            next(active.rounds)
    with start_run(SHORT, out, from_round=1, observers=[fedadb.MLflow()]) as active:
        assert len(list(active.rounds)) == 3
    client = mlflow_client()
    [run] = mlflow_runs(client)
    assert mlflow_steps(client, run.info.run_id) == recorded(out)


def test_a_run_that_mlflow_no_longer_has_is_written_anew(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted(out, fedadb.MLflow())
    [first] = mlflow_runs(mlflow_client())
    [stored] = Path("mlruns").glob(f"*/{first.info.run_id}")
    shutil.rmtree(stored)
    fedadb.run(SHORT, out, observers=[fedadb.MLflow()])
    client = mlflow_client()
    [run] = mlflow_runs(client)
    assert mlflow_steps(client, run.info.run_id) == recorded(out)


def test_mlflow_knows_how_a_run_ended(tmp_path: Path) -> None:
    def train(out: Path, error: BaseException) -> None:
        with start_run(SHORT, out, observers=[fedadb.MLflow()]) as active:
            next(active.rounds)
            raise error

    with pytest.raises(RuntimeError):
        train(tmp_path / "FAILED", RuntimeError("wrong"))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "KILLED", KeyboardInterrupt())
    ended = {run.info.run_name: run.info.status for run in mlflow_runs(mlflow_client())}
    assert ended == {"FAILED": "FAILED", "KILLED": "KILLED"}


def test_mlflow_can_have_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    fedadb.run(SHORT, tmp_path / "run", observers=[fedadb.MLflow()])
    assert len(mlflow_runs(mlflow_client(uri))) == 1
    assert not Path("mlruns").exists()


def test_a_setting_that_is_too_long_for_mlflow_is_shortened(tmp_path: Path) -> None:
    classes = {"classes": [f"class {c}" for c in range(1000)]}
    long = Experiment.read({**SHORT.table(), "rounds": 1, "deployment": classes})
    fedadb.run(long, tmp_path / "run", observers=[fedadb.MLflow()])
    [run] = mlflow_runs(mlflow_client())
    text = run.data.params["deployment.classes"]
    assert text.startswith("['class 0', 'class 1'")
    assert text.endswith("…")
    assert len(text) == 500


# W&B


def wandb_history(out: Path) -> tuple[str, list[tuple[int, float]]]:
    """The id and the accuracies of the only offline run in the directory."""
    [path] = (out / "wandb").glob("offline-run-*/*.wandb")
    records = wandb_records(path)
    # Another process writes the file, and goes on for a moment after the run's end.
    deadline = time.monotonic() + 60
    while records[-1:] == [] or records[-1].WhichOneof("record_type") != "exit":
        assert time.monotonic() < deadline, "W&B does not end the run"
        time.sleep(0.05)
        records = wandb_records(path)
    rounds = []
    for record in records:
        items = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.history.item}
        if items:
            rounds.append((items["_step"], items["accuracy"]))
    [name] = {record.run.run_id for record in records if record.HasField("run")}
    return name, rounds


def wandb_records(path: Path) -> list[Any]:
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    made = []
    for data in log_entries(path.read_bytes()):
        made.append(messages.Record())
        made[-1].ParseFromString(data)
    return made


def log_entries(raw: bytes) -> Iterator[bytes]:
    """The entries of a file in LevelDB's log format, after W&B's header of seven bytes."""
    block, header = 32768, 7
    at, entry = header, b""
    while at + header <= len(raw):
        if block - at % block < header:  # the rest of a block that is too short is padding
            at += block - at % block
            continue
        _, length, kind = struct.unpack("<IHB", raw[at : at + header])
        if at + header + length > len(raw):  # it is being written
            return
        entry += raw[at + header : at + header + length]
        at += header + length
        if kind in (1, 4):  # the whole entry, or its last part
            yield entry
            entry = b""


def test_a_resumed_run_has_each_round_once_in_wandb(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted(out, fedadb.WandB())
    first, rounds = wandb_history(out)
    assert rounds == recorded(out)
    interrupted(out)  # without it
    fedadb.run(SHORT, out, observers=[fedadb.WandB()])
    again, rounds = wandb_history(out)
    assert again == first
    assert rounds == recorded(out)
    assert len(rounds) == 4


# all of them


def test_trackers_change_no_result(tmp_path: Path) -> None:
    fedadb.run(SHORT, tmp_path / "alone")
    trackers = make_trackers(",".join(TRACKERS))
    history = fedadb.run(SHORT, tmp_path / "tracked", observers=trackers)
    assert (tmp_path / "alone" / "model.safetensors").read_bytes() == (
        tmp_path / "tracked" / "model.safetensors"
    ).read_bytes()
    assert history.accuracy == [a for _, a in recorded(tmp_path / "alone")]


def test_one_tracker_follows_several_runs(tmp_path: Path) -> None:
    code, _, err = invoke("compare", *WORDS, "--out", "both", "--track", "tensorboard, mlflow")
    assert (code, err) == (0, "")
    client = mlflow_client()
    runs = [run for run in (tmp_path / "both").iterdir() if (run / ROUNDS).exists()]
    assert {run.info.run_name for run in mlflow_runs(client)} == {run.name for run in runs}
    assert len(runs) == 2
    for run in runs:
        name = json.loads((run / TRACKED).read_text())["mlflow"]
        assert mlflow_steps(client, name) == recorded(run)
        assert [e.step for e in events(run).Scalars("accuracy")] == [1, 2, 3]


def test_a_tracker_that_fails_is_one_line_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "mlruns").write_text("not a directory")
    code, out, err = invoke("run", *WORDS, "--out", tmp_path / "run", "--track", "mlflow")
    assert code == 0
    assert err.startswith("fedadb: the observer MLflow failed and is not called again")
    assert err.count("\n") == 1
    assert "round 3/3" in out


def test_every_command_that_trains_takes_trackers() -> None:
    commands: Any = typer.main.get_command(app)
    server = commands.commands["deploy"].commands["server"]
    for command in (*(commands.commands[name] for name in ("run", "compare", "reproduce")), server):
        options = {option: p for p in command.params for option in p.opts}
        assert "--track" in options, command.name
        assert all(name in options["--track"].help for name in TRACKERS)


@pytest.mark.parametrize(
    ("track", "message"),
    [
        ("mlflw", "--track 'mlflw': is not known; did you mean mlflow? Possible are tensorboard"),
        ("", "--track '': is not known; possible are tensorboard, mlflow, wandb"),
        ("mlflow,", "--track '': is not known"),
        ("mlflow,mlflow", "--track mlflow,mlflow: mlflow is given twice"),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["compare"], ["reproduce", "pacs"]])
def test_wrong_trackers_are_refused(command: list[str], track: str, message: str) -> None:
    code, _, err = invoke(*command, *WORDS, "--out", "out", "--track", track)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_refused_before_anything_is_written(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    message = f"tracking with {name} needs a package: `pip install 'fedadb[{name}]'`"
    code, _, err = invoke("run", *WORDS, "--out", "out", "--track", name)
    assert (code, err) == (2, f"fedadb: {message}\n")
    assert not Path("out").exists()
    with pytest.raises(BadInput, match="needs a package"):
        TRACKERS[name]()


def test_scalars_are_the_numbers_of_a_record() -> None:
    record = {
        "round": 3,
        "accuracy": 0.5,
        "class_accuracy": [0.25, None, 1.0],
        "clients": [3, 4],
        "lost": {"north": "it disconnected"},
        "tau": None,
    }
    assert dict(scalars(record)) == {
        "accuracy": 0.5,
        "class_accuracy/0": 0.25,
        "class_accuracy/2": 1.0,
    }
