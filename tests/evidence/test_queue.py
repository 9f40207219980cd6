"""The queue of the published results: its only state is the file of rows."""

import shutil
from itertools import count
from pathlib import Path

import pytest

from evidence import queue
from evidence.curves import class_curves, curves_file, read_curves
from evidence.queue import in_order, missing, run_queue
from evidence.rows import read_rows, row_identity
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import done_rounds, rounds, run


def experiment(algorithm: str = "fedavg", seed: int = 0, lr: float = 0.05) -> Experiment:
    return Experiment.read({
        "dataset": "digits", "rounds": 3, "seed": seed, "algorithm": algorithm,
        "local": {"epochs": 1, "lr": lr}, "engine": {"workers": 1, "kernels": "torch"},
        "federation": {"clients": 6, "participation": 0.34, "partition": {"alpha": 5.0}},
    })  # fmt: skip


def test_the_queue_stops_in_time_and_resumes(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "runs"
    study = [experiment(seed=seed) for seed in (0, 1)]
    said: list[str] = []
    # The clock goes on by one second each time it is read: once before the queue, before each run
    # and at its start, and after each of its rounds.
    clock = map(float, count()).__next__
    assert run_queue(study, rows, out, said.append, seconds=4, clock=clock) == []
    assert said[-1].endswith("stopped after round 2 of 3")
    assert not rows.exists()
    assert done_rounds(out / run_name(study[0])) == 2
    assert run_queue(study, rows, out, said.append) == []
    assert missing(study, rows) == []
    alone = run(study[0], tmp_path / "alone")
    found = read_curves(rows)[row_identity(read_rows(rows)[0])]
    assert found == pytest.approx(alone.accuracy, abs=1e-4)


def test_rows_survive_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "runs"
    run_queue([experiment()], rows, out, lambda line: None)
    shutil.rmtree(out)
    began: list[str] = []
    monkeypatch.setattr(queue, "train", lambda e, *_: began.append(run_name(e)))
    study = [experiment(), experiment(seed=1)]
    run_queue(study, rows, out, lambda line: None)
    assert began == [run_name(study[1])]
    (curve,) = read_rows(curves_file(rows))
    assert len(class_curves(curve)) == 10
    assert {len(of_class) for of_class in class_curves(curve)} == {3}


def test_rows_of_other_studies_are_taken(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("method,accuracy\nfedavg,50\n")
    run_queue([experiment()], tmp_path / "first.csv", tmp_path / "runs", lambda line: None)
    said: list[str] = []
    second = tmp_path / "second.csv"
    run_queue([experiment()], second, tmp_path / "nothing", said.append)
    assert second.read_text() == (tmp_path / "first.csv").read_text()
    assert curves_file(second).read_text() == (tmp_path / "first.curves.csv").read_text()
    assert not (tmp_path / "nothing").exists()
    assert said[-1] == f"1 of 1 rows are in {second}"


def test_a_run_that_diverges_is_a_row(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    study = [experiment(lr=1e30), experiment()]
    assert run_queue(study, rows, tmp_path / "runs", lambda line: None) == []
    trained = {row["settings"]: row["trained"] for row in read_rows(rows)}
    assert sorted(trained.values()) == ["0", "3"]
    assert missing(study, rows) == []


def test_what_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "runs"
    study = [experiment(), experiment(seed=1)]
    (out / run_name(study[0])).mkdir(parents=True)
    (out / run_name(study[0]) / "of another program").touch()
    (error,) = run_queue(study, rows, out, lambda line: None)
    assert "is not a run" in error
    assert missing(study, rows) == [study[0]]


class KnownCosts:
    """Measures nothing: a round of FedADB takes twice as long as one of FedAvg."""

    def known(self, e: Experiment) -> bool:
        return True

    def round_seconds(self, e: Experiment) -> float:
        return 2.0 if e.algorithm.name == "FedADB" else 1.0


def test_first_what_was_begun_then_the_first_seed_and_its_cheap_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MeasuredCosts", KnownCosts)
    study = [experiment("fedadb"), experiment(seed=1), experiment(), experiment(seed=2)]
    assert in_order(study, tmp_path) == [study[2], study[0], study[1], study[3]]
    for _ in zip(range(1), rounds(study[3], tmp_path / run_name(study[3])), strict=False):
        pass
    assert in_order(study, tmp_path)[0] == study[3]
