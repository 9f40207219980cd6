"""A run knows which kernels computed it, and does not resume on others unless it is told to."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedadb
from fedadb.analysis import hessian
from fedadb.core.data import Batch
from fedadb.core.errors import BadInput, Fault
from fedadb.experiment import run as runs
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.settings import role
from fedadb.experiment.stored import read_run
from fedadb.kernels import library
from fedadb.kernels.notice import KernelsWarning
from fedadb.storage.tensorfile import read_tensors, write_tensors
from tests.command_line import Ended, invoke
from tests.conftest import forget_compiler

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("needs_kernels")]

FEDADB = {"name": "fedadb", "steps": 2}


@pytest.fixture
def data(tmp_path: Path) -> str:
    x = np.random.default_rng(0).integers(256, size=(60, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(60) % 2)
    return f"npz:{tmp_path / 'mine.npz'}"


def experiment(data: str, kernels: str = "auto", workers: int = 1) -> Experiment:
    engine: dict[str, Any] = {"kernels": kernels, "workers": workers}
    table = {
        "dataset": data,
        "rounds": 3,
        "local": {"epochs": 1, "batch_size": 10},
        "federation": {"clients": 2, "participation": 1, "partition": "iid"},
        "algorithm": FEDADB,
        "engine": engine,
    }
    return Experiment.read(table)


def one_round(e: Experiment, out: Path) -> None:
    with runs.start_run(e, out) as active:
        next(active.rounds)


def resume(out: Path, *settings: str) -> Ended:
    words = [word for setting in settings for word in ("--set", setting)]
    return invoke("run", out / "experiment.toml", "--out", out, *words)


def environment(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "environment.json").read_text())
    return read


def checkpoint_kernels(out: Path) -> str | None:
    _, metadata = read_tensors(out / "checkpoint.safetensors", "")
    return metadata.get("kernels")


def model(out: Path) -> bytes:
    tensors, _ = read_tensors(out / "model.safetensors", "")
    return b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))


def differing(out: Path, before: str, after: str) -> str:
    """What the command says when a run resumes after round 1 on other kernels."""
    return (
        f"fedadb: {out / 'checkpoint.safetensors'} was computed by the kernels '{before}', and the "
        f"run resumes on '{after}': from round 2 on, its bits differ\n"
    )


def test_a_run_says_which_kernels_computed_it(data: str, tmp_path: Path) -> None:
    for kernels, said in (("auto", f"fedadb {library.name()}"), ("torch", "torch")):
        one_round(experiment(data, kernels), tmp_path / kernels)
        assert environment(tmp_path / kernels)["kernels"] == said
        assert checkpoint_kernels(tmp_path / kernels) == said


def test_our_own_kernels_give_the_same_bits_however_the_work_is_spread(
    data: str, tmp_path: Path
) -> None:
    fedadb.run(experiment(data), tmp_path / "whole")
    fedadb.run(experiment(data, workers=2), tmp_path / "two")
    one_round(experiment(data, workers=2), tmp_path / "resumed")
    fedadb.run(experiment(data), tmp_path / "resumed")
    assert model(tmp_path / "two") == model(tmp_path / "resumed") == model(tmp_path / "whole")
    assert "later" not in environment(tmp_path / "resumed")


def test_many_channels_give_the_same_bits_however_the_work_is_spread(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(256, size=(20, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x=x, y=np.arange(20) % 2)
    data = f"npz:{tmp_path / 'few.npz'}"
    settings = {"rounds": 1, "model": "resnet18", "algorithm": "fedavg"}
    for name, workers in (("one", 1), ("two", 2)):
        e = experiment(data, workers=workers).table() | settings
        fedadb.run(Experiment.read(e), tmp_path / name)
        assert library.name() in environment(tmp_path / name)["kernels"]
    assert model(tmp_path / "one") == model(tmp_path / "two")


def test_a_run_does_not_resume_on_other_kernels_by_itself(data: str, tmp_path: Path) -> None:
    out, ours = tmp_path / "run", f"fedadb {library.name()}"
    one_round(experiment(data, "torch"), out)
    before = {p: p.read_bytes() for p in out.iterdir()}
    with pytest.raises(BadInput) as refused:
        fedadb.run(experiment(data), out)
    sentence = str(refused.value)
    assert sentence == (
        f"{out / 'checkpoint.safetensors'} was computed by the kernels 'torch', and the run would "
        f"resume on '{ours}', whose bits differ; --set engine.kernels=torch resumes on 'torch', "
        f"--set engine.kernels=auto on '{ours}' (in Python: any_kernels=True)"
    )
    assert {p: p.read_bytes() for p in out.iterdir()} == before
    (out / "experiment.toml").write_text(experiment(data).toml())  # as if it said auto
    assert resume(out) == (2, "", f"fedadb: {sentence}\n")


def test_the_command_line_decides_for_torch(data: str, tmp_path: Path) -> None:
    one_round(experiment(data, "torch"), tmp_path / "run")
    fedadb.run(experiment(data, "torch"), tmp_path / "whole")
    ended = resume(tmp_path / "run", "engine.kernels=torch")
    assert (ended.code, ended.err) == (0, "")  # its bits do not differ
    assert model(tmp_path / "run") == model(tmp_path / "whole")
    assert "later" not in environment(tmp_path / "run")


def test_the_command_line_decides_for_our_own(data: str, tmp_path: Path) -> None:
    out, ours = tmp_path / "run", f"fedadb {library.name()}"
    one_round(experiment(data, "torch"), out)
    ended = resume(out, "engine.kernels=auto")
    assert (ended.code, ended.err) == (0, differing(out, "torch", ours))
    assert environment(out)["kernels"] == "torch"
    later = [(e["after_round"], e["kernels"]) for e in environment(out)["later"]]
    assert later == [(1, ours)]
    assert checkpoint_kernels(out) == ours


def test_a_comparison_takes_the_decision_too(data: str, tmp_path: Path) -> None:
    e = experiment(data, "torch")
    one_round(e, tmp_path / run_name(e))
    (tmp_path / "file.toml").write_text(experiment(data).toml())
    words = ["compare", tmp_path / "file.toml", "--algorithms", "fedadb", "--out", tmp_path]
    ended = invoke(*words)
    assert (ended.code, "was computed by the kernels 'torch'" in ended.err) == (2, True)
    assert invoke(*words, "--set", "engine.kernels=auto").code == 0


def test_kernels_of_another_machine_are_other_kernels(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    one_round(experiment(data), out)
    monkeypatch.setattr(runs, "kernels_of", lambda f: "fedadb another")
    with pytest.raises(
        BadInput, match=r"kernels 'fedadb \w{12}', .* would resume on 'fedadb another"
    ):
        fedadb.run(experiment(data), out)


def test_a_run_of_our_own_kernels_does_not_resume_without_a_compiler_by_itself(
    data: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out, name = tmp_path / "run", library.name()
    one_round(experiment(data), out)
    request.getfixturevalue("no_compiler")
    ended = resume(out)
    assert ended.code == 2
    reason, refusal = ended.err.splitlines()
    assert reason.endswith(
        "torch's kernels are used, which are slower: no C++ compiler is installed"
    )
    assert refusal.endswith("whose bits differ; --set engine.kernels=torch resumes on 'torch'")
    forget_compiler()
    ended = resume(out, "engine.kernels=torch")  # no missing compiler to warn of
    assert (ended.code, ended.err) == (0, differing(out, f"fedadb {name}", "torch"))
    assert [e["kernels"] for e in environment(out)["later"]] == ["torch"]


def test_in_python_the_setting_torch_decides(data: str, tmp_path: Path) -> None:
    one_round(experiment(data), tmp_path / "run")
    fedadb.run(experiment(data, "torch"), tmp_path / "run")
    assert checkpoint_kernels(tmp_path / "run") == "torch"


def test_in_python_an_argument_decides_for_our_own(
    data: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, ours = tmp_path / "run", f"fedadb {library.name()}"
    one_round(experiment(data, "torch"), out)
    with pytest.warns(KernelsWarning, match="from round 2 on, its bits differ"):
        next(fedadb.rounds(experiment(data), out, any_kernels=True))
    assert [f"fedadb: {line}\n" for line in caplog.messages] == [differing(out, "torch", ours)]
    assert len(fedadb.run(experiment(data), out, any_kernels=True).rounds) == 3
    assert checkpoint_kernels(out) == ours


def test_a_simulation_that_is_kept_takes_the_decision_too(data: str, tmp_path: Path) -> None:
    e, out = experiment(data, "torch"), tmp_path / "run"
    one_round(e, out)
    table = experiment(data).table()
    algorithm, model, dataset = (table.pop(key) for key in ("algorithm", "model", "dataset"))
    with pytest.raises(BadInput, match="in Python: any_kernels=True"):
        fedadb.simulate(algorithm, model, dataset, out=out, **table)
    fedadb.simulate(algorithm, model, dataset, out=out, any_kernels=True, **table)


@pytest.mark.parametrize("changed", ["kernels", "data"])
def test_a_run_that_cannot_return_to_a_round_keeps_the_later_ones(
    data: str, tmp_path: Path, changed: str
) -> None:
    out = tmp_path / "run"
    with runs.start_run(experiment(data, "torch"), out) as active:
        next(active.rounds)
        next(active.rounds)
    before = {p: p.read_bytes() for p in out.iterdir()}
    e = experiment(data, "auto" if changed == "kernels" else "torch")
    if changed == "data":
        x = np.zeros((60, 28, 28), dtype=np.uint8)
        np.savez(tmp_path / "mine.npz", x=x, y=np.arange(60) % 2)
    with (
        pytest.raises((BadInput, Fault), match=r"checkpoint-0001.* (was computed|belongs) "),
        runs.start_run(e, out, from_round=1),
    ):
        pass
    assert {p: p.read_bytes() for p in out.iterdir()} == before


def test_a_run_of_an_earlier_version_was_computed_by_torch(data: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    one_round(experiment(data, "torch"), out)
    tensors, metadata = read_tensors(out / "checkpoint.safetensors", "")
    old = {key: metadata[key] for key in ("round", "memories", "data")}
    write_tensors(out / "checkpoint.safetensors", tensors, old)
    recorded = environment(out)
    del recorded["kernels"]
    (out / "environment.json").write_text(json.dumps(recorded))
    with pytest.raises(BadInput, match="was computed by the kernels 'torch'"):
        fedadb.run(experiment(data), out)
    fedadb.run(experiment(data, "torch"), out)
    assert environment(out) == recorded  # nothing has changed since


def test_the_setting_is_not_part_of_a_runs_identity(data: str) -> None:
    """A run of an earlier version, which had no such setting, keeps its name."""
    assert run_name(experiment(data)) == run_name(experiment(data, "torch"))
    assert role("engine.kernels").affects == "rounding"


def test_a_wrong_value_is_named() -> None:
    ended = invoke("run", "--set", "engine.kernels=lanes")
    assert ended == (2, "", "fedadb: engine.kernels = 'lanes': must be 'auto' or 'torch'\n")


def test_analyses_have_second_derivatives_whatever_computed_the_run(
    data: str, tmp_path: Path
) -> None:
    fedadb.run(experiment(data), tmp_path / "run")
    stored = read_run(tmp_path / "run")
    assert stored.f.fast_body is None
    train = stored.require_data().train
    batch = Batch(stored.spec.transform.normalise(train.x[:8]), train.y[:8])
    product = hessian.hessian_product(stored.f, stored.w, [batch])
    n = int(hessian.deployed_weights(stored.f, stored.w).sum())
    assert np.linalg.norm(product(np.ones(n))) > 0


def test_the_version_says_which_kernels_are_used() -> None:
    shown = invoke("--version").out
    assert re.fullmatch(
        rf"fedadb \d\S+, torch \d\S+, kernels: fedadb {library.name()} \(compiled\)\n", shown
    ), shown


@pytest.mark.usefixtures("no_compiler")
def test_the_version_says_why_torchs_kernels_are_used() -> None:
    shown = invoke("--version").out
    assert shown.endswith(", kernels: torch (no C++ compiler is installed)\n")
