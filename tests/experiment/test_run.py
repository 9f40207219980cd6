import importlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from torch import Tensor

import fedadb
from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.vector import Vector
from fedadb.experiment import identity, simulation
from fedadb.experiment import run as runs
from fedadb.experiment.build import FederatedData, build_data
from fedadb.experiment.config import Experiment
from fedadb.experiment.disclosure import markdown
from fedadb.experiment.presets import RATES
from fedadb.experiment.toml_tables import assign, load_toml
from fedadb.progress import Progress
from fedadb.storage import files, tensorfile
from fedadb.storage.records import append_record, read_records
from tests.command_line import invoke, start
from tests.engine.test_federate import Counting

pytestmark = pytest.mark.integration

TABLE: dict[str, Any] = {
    "rounds": 4,
    "local": {"epochs": 1},
    "model": "mlp",
    "algorithm": {"name": "fedadb", "steps": 2},
    "engine": {"workers": 1},
}
SMALL = Experiment.read(TABLE)


def numbers(directory: Path) -> list[dict[str, Any]]:
    """What was recorded, apart from how long it took."""
    return [
        {k: v for k, v in r.items() if "seconds" not in k}
        for r in read_records(directory / "rounds.jsonl")
    ]


def weights(directory: Path) -> dict[str, list[float]]:
    return {k: v.flatten().tolist() for k, v in load_file(directory / "model.safetensors").items()}


def one_round(out: Path, experiment: Experiment = SMALL) -> None:
    """Start the run, and stop after its first round."""
    with runs.start_run(experiment, out) as active:
        next(active.rounds)


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
        *(f"checkpoint-{t:04}.safetensors" for t in (2, 3)),
        "environment.json",
        "experiment.toml",
        "model.safetensors",
        "partition.json",
        "rounds.jsonl",
        "who-learns-what.md",
        *(f"kept-{t:04}.safetensors" for t in (1, 2, 4)),  # the anchors that are kept
    }
    assert (unbroken / "who-learns-what.md").read_text() == markdown(SMALL.table())
    first = read_records(unbroken / "rounds.jsonl")[0]
    assert list(first) == [
        "round",
        "accuracy",
        "loss",
        "class_accuracy",
        "clients",
        "bytes_down",
        "bytes_up",
        "lr",
        "seconds",
        "cag_seconds",
        "tau",
        "gamma",
        "beta",
        "anchor_confidence",
    ]
    assert first["round"] == 1
    assert len(first["class_accuracy"]) == 10
    assert len(first["clients"]) == 4
    assert first["lr"] == RATES["digits"]["fedadb"]
    about = json.loads((unbroken / "environment.json").read_text())
    assert about["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert about["device"] == "cpu"
    assert set(weights(unbroken)) >= {"body.1.weight", "heads.A.bias", "heads.L.bias"}


def test_the_written_experiment_runs_as_it_is(unbroken: Path, tmp_path: Path) -> None:
    again = Experiment.read(load_toml(unbroken / "experiment.toml"))
    assert again == SMALL
    fedadb.run(again, tmp_path / "again")
    assert numbers(tmp_path / "again") == numbers(unbroken)
    assert weights(tmp_path / "again") == weights(unbroken)
    kept = (unbroken / "experiment.toml").read_text()
    assert (tmp_path / "again" / "experiment.toml").read_text() == kept


def test_another_seed_gives_other_numbers(unbroken: Path, tmp_path: Path) -> None:
    fedadb.run(Experiment.read(TABLE | {"seed": 1}), tmp_path)
    assert numbers(tmp_path) != numbers(unbroken)


def test_a_finished_run_is_not_run_again(unbroken: Path) -> None:
    stamps = {p: p.stat().st_mtime_ns for p in unbroken.iterdir()}
    history = fedadb.run(SMALL, unbroken)
    assert len(history.rounds) == 4
    assert history.accuracy == [r["accuracy"] for r in numbers(unbroken)]
    assert {p: p.stat().st_mtime_ns for p in unbroken.iterdir()} == stamps


class Crash(BaseException):
    """The process ends here."""


def crashing(
    function: Callable[..., Any], before: bool, countdown: Iterator[int]
) -> Callable[..., Any]:
    """The function, with an crash before or after one of its calls."""

    def wrapped(*args: Any) -> Any:
        last = next(countdown) == 0
        if last and before:
            raise Crash
        result = function(*args)
        if last:
            raise Crash
        return result

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
            patch.setattr(runs, "append_record", crashing(append_record, before, countdown))
            whole = crashing(files.write_atomically, before, countdown)
            patch.setattr(runs, "write_atomically", whole)
            patch.setattr(tensorfile, "write_atomically", whole)
            try:
                fedadb.run(SMALL, out)
            except Crash:
                crashes += 1
            else:
                break
    assert crashes >= 5
    assert numbers(out) == numbers(unbroken)
    assert weights(out) == weights(unbroken)


def test_a_run_that_is_killed_resumes_to_the_same_end(tmp_path: Path) -> None:
    """Real processes and a real SIGKILL, at several moments of the start and of the rounds."""
    fast = {"name": "fedadb", "steps": 5}
    experiment = Experiment(rounds=12, local={"epochs": 1}, algorithm=fast)

    def train_until_killed(e: Experiment, out: Path) -> None:
        """Waits before the last round, however fast the machine is."""
        for record in runs.rounds(e, out):
            if record["round"] == e.rounds - 1:
                signal.pause()

    def start(out: Path, target: Callable[[Experiment, Path], Any] = fedadb.run) -> BaseProcess:
        """A fork of this process, which has loaded torch already."""
        process = multiprocessing.get_context("fork").Process(target=target, args=(experiment, out))
        process.start()
        return process

    def lines(out: Path) -> int:
        path = out / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    undisturbed = start(whole)
    killed = 0
    for more_lines, delay in ((0, 0.0), (1, 0.0), (1, 0.005), (1, 0.02), (1, 0.1)):
        at_line = min(lines(broken) + more_lines, experiment.rounds - 1)
        process = start(broken, train_until_killed)
        while process.is_alive() and not (
            (broken / "experiment.toml").exists() and lines(broken) >= at_line
        ):
            time.sleep(0.002)
        time.sleep(delay)
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    assert killed == 5
    last = start(broken)
    for process in (last, undisturbed):
        process.join()
        assert process.exitcode == 0
    assert len(numbers(whole)) == 12
    assert numbers(broken) == numbers(whole)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_run_of_an_earlier_version_resumes(unbroken: Path, tmp_path: Path) -> None:
    """Settings had other names then, some did not exist, and one exists no longer."""
    one_round(tmp_path / "run")
    path = tmp_path / "run" / "experiment.toml"
    table = load_toml(path)
    del table["validation"], table["filter"], table["server"]
    table["deployment"]["norm_bound"] = "none"
    table["local"] = {"epochs": 1, "batch_size": 32, "lr": SMALL.local.lr, "weight_decay": 1e-5}
    table["local"] |= {"lr_decay": 0.99, "momentum": 0.9}
    path.write_text(tomli_w.dumps(table))
    code, _, err = invoke("run", path, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert numbers(tmp_path / "run") == numbers(unbroken)
    assert weights(tmp_path / "run") == weights(unbroken)


@pytest.mark.parametrize("damage", ["model.safetensors", "rounds.jsonl"])
def test_a_finished_run_that_is_damaged_is_not_believed(
    unbroken: Path, tmp_path: Path, damage: str
) -> None:
    shutil.copytree(unbroken, tmp_path / "run")
    path = tmp_path / "run" / damage
    path.write_bytes(b"" if damage == "rounds.jsonl" else path.read_bytes()[:-9])
    with pytest.raises(Fault, match=r"damaged|has 0 of 4 rounds"):
        fedadb.run(SMALL, tmp_path / "run")


def test_another_experiment_is_kept_out(unbroken: Path) -> None:
    other = Experiment.read(TABLE | {"local": {"epochs": 1, "lr": 0.3}})
    before = {p: p.read_bytes() for p in unbroken.iterdir()}
    with pytest.raises(BadInput, match=r"local\.lr is 0\.03 there and 0\.3 here"):
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
    with runs.start_run(SMALL, tmp_path / "run") as active:
        next(active.rounds)
        with pytest.raises(BadInput, match="another process is using"):
            fedadb.run(SMALL, tmp_path / "run")
        assert len(list(active.rounds)) == 3


def test_a_directory_taken_while_the_data_load_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process starts, and stops, between this one's first look and its lock."""
    out = tmp_path / "run"

    def build_slowly(experiment: Experiment, progress: Progress) -> FederatedData:
        monkeypatch.undo()
        one_round(out, Experiment.read(TABLE | {"local": {"epochs": 1, "lr": 0.3}}))
        return build_data(experiment, progress)

    monkeypatch.setattr(simulation, "build_data", build_slowly)
    with pytest.raises(BadInput, match="holds another experiment"):
        fedadb.run(SMALL, out)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_stops_the_run(tmp_path: Path, damage: str) -> None:
    out = tmp_path / "run"
    one_round(out)
    saved = bytearray((out / "checkpoint.safetensors").read_bytes())
    if damage == "truncated":
        del saved[-100:]
    else:
        saved[-1000] ^= 1
    (out / "checkpoint.safetensors").write_bytes(saved)
    before = {p: p.read_bytes() for p in out.iterdir()}
    code, _, err = invoke("run", out / "experiment.toml", "--out", out)
    assert code == 1
    assert re.fullmatch(r"fedadb: .*checkpoint.safetensors is damaged .*; delete it .*\n", err)
    assert {p: p.read_bytes() for p in out.iterdir()} == before


@pytest.mark.parametrize("limit", [20_000, 600])
def test_a_full_disk_loses_nothing(unbroken: Path, tmp_path: Path, limit: int) -> None:
    """No file may grow to what a checkpoint, or a few lines, need; then there is room again."""
    out = tmp_path / "run"
    one_round(out)
    kept = (out / "rounds.jsonl").read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # the fork inherits it
    try:
        command = start("run", out / "experiment.toml", "--out", out, errors=tmp_path / "errors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    command.join()
    assert command.exitcode == 1
    assert re.fullmatch(r"fedadb: .*File too large.*\n", (tmp_path / "errors").read_text())
    assert (out / "rounds.jsonl").read_bytes().startswith(kept)
    fedadb.run(SMALL, out)
    assert numbers(out) == numbers(unbroken)
    assert weights(out) == weights(unbroken)


def test_anchors_of_chosen_rounds_are_kept(tmp_path: Path) -> None:
    table = {
        "rounds": 3,
        "keep_broadcasts": [1, 3],
    }
    fedadb.run(Experiment.read(TABLE | table), tmp_path / "run")
    kept = sorted(p.name for p in (tmp_path / "run").glob("kept-*"))
    assert kept == ["kept-0001.safetensors", "kept-0003.safetensors"]
    sent = load_file(tmp_path / "run" / kept[1])
    assert sent["anchors/x"].shape == (10, 1, 28, 28)
    assert sent["anchors/c"].tolist() == list(range(10))
    recorded = read_records(tmp_path / "run" / "rounds.jsonl")[2]["tau"]
    assert float(sent["tau"]) == recorded
    assert "w/heads.L.weight" in sent
    assert (sent["low"].item(), sent["high"].item()) == (-1, 1)


def test_data_that_changed_stop_the_run(tmp_path: Path) -> None:
    y = np.arange(200) % 2
    table = {
        "dataset": f"npz:{tmp_path / 'mine.npz'}",
        "rounds": 2,
        "federation": {"clients": 2, "participation": 1, "partition": "iid"},
    }
    np.savez(tmp_path / "mine.npz", x=np.full((200, 28, 28), 7, np.uint8), y=y)
    one_round(tmp_path / "run", Experiment.read(table))
    np.savez(tmp_path / "mine.npz", x=np.full((200, 28, 28), 8, np.uint8), y=y)
    with pytest.raises(Fault, match="belongs to other data"):
        fedadb.run(Experiment.read(table), tmp_path / "run")


def test_where_a_run_resumes_elsewhere_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_round(tmp_path / "run")
    one_round(tmp_path / "run")
    path = tmp_path / "run" / "environment.json"
    assert "later" not in json.loads(path.read_text())
    monkeypatch.setattr("fedadb.experiment.environment.processor", lambda: "another")
    fedadb.run(SMALL, tmp_path / "run")
    later = json.loads(path.read_text())["later"]
    assert [(e["after_round"], e["machine"]["processor"]) for e in later] == [(2, "another")]


@dataclass(frozen=True)
class Remembering(Counting):
    """With fields that TOML has no types for."""

    rounds: tuple[int, ...] = (1, 2)
    limit: float | None = None


def test_an_algorithm_with_memory_and_odd_fields_resumes(tmp_path: Path) -> None:
    experiment = Experiment(**TABLE | {"rounds": 3, "algorithm": Remembering()})
    one_round(tmp_path / "broken", experiment)
    fedadb.run(experiment, tmp_path / "broken")
    fedadb.run(experiment, tmp_path / "whole")
    ends = [(tmp_path / run / "checkpoint.safetensors").read_bytes() for run in ("broken", "whole")]
    assert ends[0] == ends[1]


class WatchedShards(Sequence[Shard]):
    """Shards that record which of them were used."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards, self.touched = shards, set[int]()

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, k: Any) -> Any:
        self.touched.add(k)
        return self.shards[k]


def test_of_ten_thousand_clients_only_the_sampled_are_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(25_000, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "many.npz", x=x, y=np.arange(25_000) % 5)
    federation = {"clients": 10_000, "participation": 0.001, "partition": "iid"}
    table = {"dataset": f"npz:{tmp_path / 'many.npz'}", "rounds": 2, "federation": federation}
    built: list[FederatedData] = []

    def build_watched(experiment: Experiment, progress: Progress) -> FederatedData:
        data = build_data(experiment, progress)
        built.append(replace(data, shards=WatchedShards(data.shards)))
        return built[0]

    monkeypatch.setattr(simulation, "build_data", build_watched)
    history = fedadb.run(Experiment.read(table), tmp_path / "run")
    sampled = {k for record in history.rounds for k in record["clients"]}
    assert len(history.rounds[0]["clients"]) == 10
    assert isinstance(built[0].shards, WatchedShards)
    assert built[0].shards.touched == sampled


def test_by_default_a_run_is_named_by_what_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert identity.default_directory(SMALL) != identity.default_directory(Experiment())
    assert identity.default_directory(SMALL).parent == Path("runs")
    own = Experiment.read({"dataset": "npz:/some/where/x.npz", "rounds": 4})
    assert os.sep not in identity.default_directory(own).name


class FallsApart(FedAvg):
    """Its clients diverge in round 3."""

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        return super().loss(f, w, batch, ctx) * (torch.inf if ctx.round.t == 3 else 1)


def test_what_was_done_before_a_divergence_is_kept(tmp_path: Path) -> None:
    for _ in range(2):  # the second time from the checkpoint of round 2, to the same end
        with pytest.raises(Fault, match=r"FallsApart: client \d+ diverged in round 3"):
            runs.run(Experiment(**TABLE | {"algorithm": FallsApart()}), tmp_path)
        assert [r["round"] for r in read_records(tmp_path / "rounds.jsonl")] == [1, 2]
    with pytest.raises(Fault, match="FedADB: the server in round 1: the anchors are not finite"):
        runs.run(Experiment(**TABLE | {"algorithm": FedADB(sigma=1e39)}), tmp_path / "adb")


def test_bfloat16_needs_a_processor_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment.read({"rounds": 2, "engine": {"precision": "bfloat16"}})
    monkeypatch.setattr("fedadb.experiment.build.has_bfloat16", lambda: False)
    with pytest.raises(BadInput, match="this processor has no instructions for it"):
        runs.run(experiment, tmp_path)
    assert not list(tmp_path.iterdir())


def test_stacked_clients_reach_the_same_accuracy(tmp_path: Path) -> None:
    accuracy = {}
    for cohort in ("auto", "stacked"):
        e = Experiment.read(TABLE | {"engine": {"cohort": cohort}})
        accuracy[cohort] = runs.run(e, tmp_path / cohort).accuracy
    assert accuracy["stacked"] == pytest.approx(accuracy["auto"], abs=0.05)


MINE = """
from dataclasses import dataclass
import fedadb

@dataclass(frozen=True)
class Mine(fedadb.FedAvg):
    mu: float = {default}
"""


def test_a_changed_algorithm_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source of the user's own code is part of a run's identity."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source = tmp_path / "mine_for_identity.py"

    def written(comment: str) -> Experiment:
        source.write_text(MINE.format(default=0.1) + f"# {comment}\n")
        importlib.invalidate_caches()
        sys.modules.pop("mine_for_identity", None)
        return Experiment.read(
            {"rounds": 1, "local": {"epochs": 1}, "algorithm": "mine_for_identity:Mine"}
        )

    first = written("as it was")
    name = identity.run_name(first)
    assert identity.run_name(first) == name
    fedadb.run(first, tmp_path / "run")
    changed = written("a bug is mended")
    assert identity.run_name(changed) != name
    with pytest.raises(BadInput, match="another version of mine_for_identity:Mine: its source"):
        fedadb.run(changed, tmp_path / "run")
    assert len(fedadb.run(written("as it was"), tmp_path / "run").rounds) == 1


def test_a_changed_model_is_another_run_too(tmp_path: Path) -> None:
    own = Experiment.read({"model": f"{__name__}:TinyModel"})
    assert list(identity.own_code(own)) == [f"{__name__}:TinyModel"]
    assert identity.own_code(SMALL) == {}


@dataclass(frozen=True)
class TinyModel:
    def body(self, shape: tuple[int, ...]) -> torch.nn.Module:
        return torch.nn.Flatten()


def test_a_run_returns_to_one_of_its_last_three_rounds(tmp_path: Path) -> None:
    """Clients' memories return as well, so the rounds are trained again with the same results."""
    experiment = Experiment(**TABLE | {"rounds": 7, "algorithm": "feddyn"})
    fedadb.run(experiment, tmp_path / "whole")
    out = tmp_path / "run"
    with runs.start_run(experiment, out) as active:
        first = [next(active.rounds) for _ in range(6)]
    for t in (4, 5, 6):
        shutil.copytree(out, tmp_path / str(t))
        with runs.start_run(experiment, tmp_path / str(t), from_round=t) as active:
            assert [record["round"] for record in active.done] == list(range(1, t + 1))
            again = list(active.rounds)
        known = [*first[t:], read_records(tmp_path / "whole" / "rounds.jsonl")[-1]]
        assert [r["accuracy"] for r in again] == [r["accuracy"] for r in known]
        assert weights(tmp_path / str(t)) == weights(tmp_path / "whole")
    with (
        pytest.raises(BadInput, match=r"--from-round 3: .* checkpoints of the rounds 4, 5, 6"),
        runs.start_run(experiment, out, from_round=3),
    ):
        pass
    with (
        pytest.raises(BadInput, match=r"--from-round 3: the run in .* is finished"),
        runs.start_run(experiment, tmp_path / "whole", from_round=3),
    ):
        pass


def test_a_damaged_earlier_checkpoint_is_named(tmp_path: Path) -> None:
    experiment = Experiment(**TABLE | {"algorithm": "fedavg"})
    with runs.start_run(experiment, tmp_path / "run") as active:
        assert len([next(active.rounds) for _ in range(3)]) == 3
    damaged = tmp_path / "run" / "checkpoint-0002.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(Fault, match=r"checkpoint-0002.* is damaged .* does not need it to resume"):
        fedadb.run(experiment, tmp_path / "run")
    damaged.unlink()
    assert len(fedadb.run(experiment, tmp_path / "run").rounds) == 4


@pytest.mark.parametrize(
    "key",
    ["algorithm", "model", "federation.partition", "local.optimizer", "local.schedule",
     "server.optimizer"],
)  # fmt: skip
def test_a_foreign_directory_imports_nothing(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write a run's directory must not be able to run code by it."""
    out = tmp_path / "run"
    out.mkdir()
    (tmp_path / "hostile_module.py").write_text(
        f"import pathlib; pathlib.Path({str(tmp_path / 'mark')!r}).touch()"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    table = assign(SMALL.table(), key, {"name": "hostile_module:Mine"})
    (out / "experiment.toml").write_text(tomli_w.dumps(table))
    with pytest.raises(BadInput, match=rf"{key}\.name is 'hostile_module:Mine' there"):
        fedadb.run(SMALL, out)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("text", ["[]", "{", '{"later": 3}', '{"later": [3]}', "[" * 100_000])
def test_a_damaged_environment_is_a_fault(tmp_path: Path, text: str) -> None:
    one_round(tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text(text)
    with pytest.raises(Fault, match=r"environment\.json is damaged"):
        fedadb.run(SMALL, tmp_path / "run")
