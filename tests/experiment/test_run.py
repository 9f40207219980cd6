import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import fedadb
from fedadb.core.errors import BadInput, Fault
from fedadb.engine import checkpoint, files, record
from fedadb.experiment import config
from fedadb.experiment import run as runs
from fedadb.experiment.config import Experiment

pytestmark = pytest.mark.integration

SMALL = Experiment.read({"rounds": 4, "local": {"epochs": 1}})


def numbers(directory: Path) -> list[dict[str, Any]]:
    """What was recorded, apart from how long it took."""
    return [
        {k: v for k, v in r.items() if k != "seconds"}
        for r in record.read(directory / "rounds.jsonl")
    ]


def weights(directory: Path) -> dict[str, list[float]]:
    return {k: v.flatten().tolist() for k, v in load_file(directory / "model.safetensors").items()}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("unbroken") / "run"
    fedadb.run(SMALL, out)
    return out


def test_the_directory_holds_what_is_promised(unbroken: Path) -> None:
    assert {p.name for p in unbroken.iterdir()} == {
        ".lock",
        "checkpoint.safetensors",
        "environment.json",
        "experiment.toml",
        "model.safetensors",
        "rounds.jsonl",
    }
    first = record.read(unbroken / "rounds.jsonl")[0]
    assert list(first) == [
        "round",
        "accuracy",
        "loss",
        "class_accuracy",
        "clients",
        "lr",
        "seconds",
    ]
    assert first["round"] == 1
    assert len(first["class_accuracy"]) == 10
    assert len(first["clients"]) == 4
    assert first["lr"] == 0.05
    about = json.loads((unbroken / "environment.json").read_text())
    assert about["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert about["device"] == "cpu"
    assert set(weights(unbroken)) >= {"body.0.weight", "heads.head.bias"}


def test_the_written_experiment_runs_as_it_is(unbroken: Path, tmp_path: Path) -> None:
    again = Experiment.read(config.load(unbroken / "experiment.toml"))
    assert again == SMALL
    fedadb.run(again, tmp_path / "again")
    assert numbers(tmp_path / "again") == numbers(unbroken)
    assert weights(tmp_path / "again") == weights(unbroken)
    kept = (unbroken / "experiment.toml").read_text()
    assert (tmp_path / "again" / "experiment.toml").read_text() == kept


def test_another_seed_gives_other_numbers(unbroken: Path, tmp_path: Path) -> None:
    fedadb.run(Experiment.read({"rounds": 4, "local": {"epochs": 1}, "seed": 1}), tmp_path)
    assert numbers(tmp_path) != numbers(unbroken)


def test_a_finished_run_is_not_run_again(unbroken: Path) -> None:
    stamps = {p: p.stat().st_mtime_ns for p in unbroken.iterdir()}
    history = fedadb.run(SMALL, unbroken)
    assert len(history.rounds) == 4
    assert history.top(2) == sum(sorted(history.accuracy)[-2:]) / 2
    assert {p: p.stat().st_mtime_ns for p in unbroken.iterdir()} == stamps


class Crash(BaseException):
    """The process ends here."""


def crashing(
    function: Callable[..., None], before: bool, countdown: Iterator[int]
) -> Callable[..., None]:
    """The function, with an end of the world before or after one of its calls."""

    def wrapped(*args: Any) -> None:
        last = next(countdown) == 0
        if last and before:
            raise Crash
        function(*args)
        if last:
            raise Crash

    return wrapped


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_at_any_write_changes_nothing(
    unbroken: Path, tmp_path: Path, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Die at the 1st, 2nd, 3rd, … write of what is left to do, until nothing is left."""
    out = tmp_path / "run"
    crashes = 0
    for at in (0, 1, 2, 3, 5, 4, 1, 6, 99):
        countdown = iter(range(at, -1000, -1))
        with monkeypatch.context() as patch:
            patch.setattr(record, "append", crashing(record.append, before, countdown))
            whole = crashing(files.write_whole, before, countdown)
            patch.setattr(runs, "write_whole", whole)
            patch.setattr(checkpoint, "write_whole", whole)
            try:
                fedadb.run(SMALL, out)
            except Crash:
                crashes += 1
            else:
                break
    assert crashes >= 5
    assert numbers(out) == numbers(unbroken)
    assert weights(out) == weights(unbroken)


def test_a_run_that_is_killed_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """Real processes and a real SIGKILL, at several moments of the start and of the rounds."""
    settings = ["--set", "rounds=8", "--set", "local.epochs=2"]

    def start(out: Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "fedadb", "run", *settings, "--out", str(out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def lines(out: Path) -> int:
        path = out / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    undisturbed = start(whole)
    killed = 0
    for at_line, delay in ((0, 0.0), (1, 0.0), (2, 0.03), (4, 0.11), (5, 0.2)):
        process = start(broken)
        while process.poll() is None and not (
            (broken / "experiment.toml").exists() and lines(broken) >= at_line
        ):
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 4
    _, errors = start(broken).communicate()
    assert errors == b""
    assert undisturbed.communicate()[1] == b""
    assert len(numbers(whole)) == 8
    assert numbers(broken) == numbers(whole)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_another_experiment_is_kept_out(unbroken: Path) -> None:
    other = Experiment.read({"rounds": 4, "local": {"epochs": 1, "lr": 0.3}})
    before = {p: p.read_bytes() for p in unbroken.iterdir()}
    with pytest.raises(BadInput, match=r"local\.lr is 0\.05 there and 0\.3 here"):
        fedadb.run(other, unbroken)
    assert {p: p.read_bytes() for p in unbroken.iterdir()} == before


def test_a_directory_that_is_not_a_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(BadInput, match=r"is not a run: it holds thesis\.tex"):
        fedadb.run(SMALL, tmp_path)
    with pytest.raises(BadInput, match="is a file"):
        fedadb.run(SMALL, tmp_path / "thesis.tex")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    rounds = runs.rounds(SMALL, tmp_path / "run")
    next(rounds)
    with pytest.raises(BadInput, match="another process is at work"):
        fedadb.run(SMALL, tmp_path / "run")
    assert len(list(rounds)) == 3


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_stops_the_run(tmp_path: Path, damage: str) -> None:
    out = tmp_path / "run"
    rounds = runs.rounds(SMALL, out)
    next(rounds)
    rounds.close()  # type: ignore[attr-defined]
    saved = bytearray((out / "checkpoint.safetensors").read_bytes())
    if damage == "truncated":
        del saved[-100:]
    else:
        saved[-1000] ^= 1
    (out / "checkpoint.safetensors").write_bytes(saved)
    before = {p: p.read_bytes() for p in out.iterdir() if p.name != "environment.json"}
    with pytest.raises(Fault, match="is damaged"):
        fedadb.run(SMALL, out)
    assert {p: p.read_bytes() for p in out.iterdir() if p.name != "environment.json"} == before


def test_a_full_disk_loses_nothing(unbroken: Path, tmp_path: Path) -> None:
    """No file may grow to what a checkpoint needs; then with room, the run goes on."""
    out = tmp_path / "run"
    rounds = runs.rounds(SMALL, out)
    next(rounds)
    rounds.close()  # type: ignore[attr-defined]
    kept = (out / "rounds.jsonl").read_bytes()
    limit = 20_000  # bytes: too few for a checkpoint
    code = (
        "import resource, sys; from fedadb.cli import main;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        f"sys.argv[1:] = 'run --set rounds=4 --set local.epochs=1 --out {out}'.split(); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("fedadb: ")
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (out / "rounds.jsonl").read_bytes().startswith(kept)
    fedadb.run(SMALL, out)
    assert numbers(out) == numbers(unbroken)
    assert weights(out) == weights(unbroken)


def test_ten_thousand_clients_train(tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(25_000, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "many.npz", x=x, y=np.arange(25_000) % 5)
    experiment = Experiment.read({
        "dataset": f"npz:{tmp_path / 'many.npz'}",
        "rounds": 2,
        "federation": {"clients": 10_000, "participation": 0.001, "partition": "iid"},
    })  # fmt: skip
    history = fedadb.run(experiment, tmp_path / "run")
    assert [len(r["clients"]) for r in history.rounds] == [10, 10]
    assert all(math.isfinite(r["loss"]) for r in history.rounds)


def test_by_default_a_run_is_named_by_what_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert runs.default_directory(SMALL) != runs.default_directory(Experiment())
    assert runs.default_directory(SMALL).parent == Path("runs")
    own = Experiment.read({"dataset": "npz:/some/where/x.npz", "rounds": 4})
    assert os.sep not in runs.default_directory(own).name
