"""Validation data: which rows are held out, and what a run records of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedadb
from fedadb import datasets
from fedadb.analysis.inputs import Options, training_sample
from fedadb.analysis.results import run_analyses
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream
from fedadb.engine.evaluate import TestSet, TestSetWithValidation, mixed_order
from fedadb.experiment.build import build_data, build_model, split_rows
from fedadb.experiment.config import Experiment
from fedadb.experiment.held_out import hold_out, remove_rows
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import start_run
from fedadb.experiment.stored import read_run
from fedadb.partition import Rows
from fedadb.storage.records import Record, read_records
from tests.command_line import invoke
from tests.conftest import toy_model, toy_shard
from tests.datasets.official import write_medmnist

SHARE = 0.2
TABLE: dict[str, Any] = {
    "rounds": 3,
    "local": {"epochs": 1},
    "model": "mlp",
    "algorithm": {"name": "fedadb", "steps": 5},
    "validation": SHARE,
}


def made(**changes: Any) -> Experiment:
    return Experiment.read({**TABLE, **changes})


def without_times(records: list[Record]) -> list[Record]:
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in records]


# which rows


def test_published_validation_rows_belong_to_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDADB_DATA", str(tmp_path))
    write_medmnist(tmp_path / "medmnist/organamnist.npz", 11)
    federation = {"clients": 2, "participation": 1.0, "partition": "iid"}
    given = {"dataset": "organamnist", "federation": federation}
    splits = datasets.load("organamnist")
    data = build_data(made(validation="published", **given))
    rows = torch.cat([shard.rows for shard in data.shards])
    assert sorted(rows.tolist()) == list(range(40))
    assert torch.equal(data.train.x, splits.train.x[:40])
    assert data.validation is not None
    assert torch.equal(data.validation.x, splits.train.x[40:][mixed_order(10)])
    everything = build_data(made(validation=0.0, **given))
    assert sum(map(len, everything.shards)) == 50


def test_some_data_have_no_published_validation_rows() -> None:
    with pytest.raises(BadInput, match="'published': digits has no validation rows of its own"):
        build_data(made(validation="published"))


def held(counts: list[list[int]], share: float, seed: int = 0) -> tuple[Rows, list[Rows], Rows]:
    """The labels of clients with so many rows per class, and what `hold_out` makes of them."""
    y = np.concatenate([np.repeat(np.arange(len(of)), of) for of in counts])
    ends = np.cumsum([sum(of) for of in counts])[:-1]
    shuffle = Stream(seed).at("shuffle").numpy()
    rows = [shuffle.permutation(r) for r in np.split(np.arange(len(y)), ends)]
    kept, out = hold_out(y, rows, share, Stream(seed))
    for before, after in zip(rows, kept, strict=True):  # the order of the others is unchanged
        assert [r for r in before if r in set(after)] == after.tolist()
    return y, kept, out


def test_a_share_of_each_class_is_held_out_and_halves_round_upwards() -> None:
    y, kept, out = held([[10, 5, 4, 0, 100], [1, 15, 0, 0, 0]], share=0.1)
    counts = [np.bincount(y[rows], minlength=5).tolist() for rows in kept]
    assert counts == [[9, 4, 4, 0, 90], [1, 13, 0, 0, 0]]
    assert np.bincount(y[out], minlength=5).tolist() == [1, 3, 0, 0, 10]


def test_a_client_keeps_its_last_row() -> None:
    y, kept, _ = held([[1, 2], [3, 1], [1, 0]], share=0.9)
    assert [y[rows].tolist() for rows in kept] == [[1], [0], [0]]


@given(
    counts=st.lists(st.lists(st.integers(0, 30), min_size=4, max_size=4), min_size=1, max_size=5),
    share=st.floats(0.01, 0.99),
)
def test_training_and_validation_rows_are_all_rows_once(
    counts: list[list[int]], share: float
) -> None:
    counts = [[*of[:3], of[3] + 1] for of in counts]  # every client has a row
    try:
        y, kept, out = held(counts, share)
    except BadInput:
        assert all(share * n + 0.5 < 1 or sum(of) == 1 for of in counts for n in of)
        return
    together = np.concatenate([*kept, out])
    assert sorted(together.tolist()) == list(range(len(y)))
    for of, rows in zip(counts, kept, strict=True):
        left = np.bincount(y[rows], minlength=4)
        assert len(rows) >= 1
        exact = np.array(of) * (1 - share)
        assert (np.abs(left - exact) <= 0.5 + 1e-9).all() or len(rows) == 1


def test_a_share_that_holds_out_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match=r"validation = 0\.001: no client has so many rows"):
        held([[10, 10], [3, 4]], share=0.001)


def test_rows_that_are_removed_leave_the_others_as_they_were() -> None:
    examples = fedadb.Examples(torch.arange(6) * 10, torch.arange(6))
    left, rows = remove_rows(examples, [np.array([5, 0]), np.array([3])], np.array([1, 4]))
    assert left.y.tolist() == [0, 2, 3, 5]
    assert [left.x[torch.from_numpy(r)].tolist() for r in rows] == [[50, 0], [30]]


def test_the_rows_follow_from_the_seed_of_the_partition_alone() -> None:
    splits = datasets.load("digits")
    rows, out = split_rows(made(), splits)
    for same in (made(algorithm="fedavg"), made(rounds=9), made(local={"lr": 0.2})):
        other_rows, other_out = split_rows(same, splits)
        assert all(np.array_equal(a, b) for a, b in zip(rows, other_rows, strict=True))
        assert np.array_equal(out, other_out)
    assert not np.array_equal(out, split_rows(made(seed=1), splits)[1])
    fixed = made(seed=1, federation={"partition_seed": 0})
    assert np.array_equal(out, split_rows(fixed, splits)[1])


def test_the_data_of_a_run_are_those_of_its_training_rows() -> None:
    splits, data, whole = (
        datasets.load("digits"),
        build_data(made()),
        build_data(made(validation=0)),
    )
    rows, out = split_rows(made(), splits)
    assert len(data.train.y) == len(whole.train.y) - len(out)
    for k, shard in enumerate(data.shards):
        assert torch.equal(shard.labels, splits.train.y[torch.from_numpy(rows[k])])
        assert torch.equal(shard.examples.x[shard.rows], splits.train.x[torch.from_numpy(rows[k])])
        assert shard.counts.tolist() == data.summary.counts[k]
    assert data.summary.examples == sum(map(len, rows))
    assert data.validation is not None
    mixed = torch.from_numpy(out)[mixed_order(len(out))]
    assert torch.equal(data.validation.x, splits.train.x[mixed])
    here, there = (np.sum(d.summary.counts, 0) for d in (data, whole))
    assert (np.abs(here / there - (1 - SHARE)) < 0.05).all()  # stratified
    assert whole.validation is None
    assert whole.summary.digest != data.summary.digest


# evaluation


def test_a_test_set_with_validation_scores_both() -> None:
    f, test, other = toy_model(), toy_shard(rows=31), toy_shard(rows=17, seed=1)
    plain, validation = (TestSet(f, s.examples, s.transform, 5) for s in (test, other))
    both = TestSetWithValidation(f, test.examples, test.transform, 5, validation=validation)
    w = f.weights()
    assert len(both) == len(plain) + len(validation)
    expected = plain.evaluate(w)._replace(validation_accuracy=validation.evaluate(w).accuracy)
    assert both.evaluate(w) == expected
    assert 0 < validation.evaluate(w).accuracy < 1
    domain = torch.arange(31) % 2
    with_domains = TestSetWithValidation(
        f, test.examples, test.transform, 5, domain, validation=validation
    )
    assert with_domains.evaluate(w).validation_accuracy == expected.validation_accuracy


# runs


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("validated") / "run"
    fedadb.run(made(engine={"workers": 1}), out)
    return out


@pytest.mark.integration
def test_records_have_the_accuracy_on_validation_data(validated: Path) -> None:
    records = read_records(validated / "rounds.jsonl")
    assert list(records[0])[:5] == [
        "round",
        "accuracy",
        "loss",
        "class_accuracy",
        "validation_accuracy",
    ]
    run = read_run(validated)  # the same data again
    data = run.require_data()
    assert data.validation is not None
    last = fedadb.evaluate(run.f, run.w, data.validation, run.spec.transform, 32)
    assert records[-1]["validation_accuracy"] == last.accuracy
    assert records[-1]["accuracy"] == data.test_set(run.f, 32).evaluate(run.w).accuracy
    written = json.loads((validated / "partition.json").read_text())
    assert written["counts"] == data.summary.counts
    sample = training_sample(run, None)
    assert len(sample) <= len(data.train.y)


@pytest.mark.integration
@pytest.mark.parametrize(
    "engine",
    [{"workers": 2}, {"workers": 2, "overlap": False}],
    ids=["overlap", "no overlap"],
)
def test_worker_processes_record_the_same(
    engine: dict[str, Any], validated: Path, tmp_path: Path
) -> None:
    history = fedadb.run(made(engine=engine), tmp_path / "run")
    expected = read_records(validated / "rounds.jsonl")
    assert without_times(history.rounds) == without_times(expected)


@pytest.mark.integration
def test_stacked_clients_have_validation_data_too(validated: Path, tmp_path: Path) -> None:
    history = fedadb.run(made(engine={"cohort": "stacked"}), tmp_path / "run")
    expected = read_records(validated / "rounds.jsonl")
    for here, there in zip(history.rounds, expected, strict=True):
        assert here["validation_accuracy"] == pytest.approx(there["validation_accuracy"], abs=0.02)


@pytest.mark.integration
def test_a_resumed_run_has_the_same_validation_data(validated: Path, tmp_path: Path) -> None:
    with start_run(made(), tmp_path / "run") as active:
        next(active.rounds)
    history = fedadb.run(made(), tmp_path / "run")
    expected = read_records(validated / "rounds.jsonl")
    assert without_times(history.rounds) == without_times(expected)
    other = made(validation=0.3)
    with pytest.raises(BadInput, match=r"validation is 0\.2 there and 0\.3 here"):
        fedadb.run(other, tmp_path / "run")


@pytest.mark.integration
def test_clients_are_recorded_beside_validation(tmp_path: Path) -> None:
    e = made(rounds=1, record_clients=True)
    [record] = fedadb.run(e, tmp_path / "run").rounds
    assert {"in_local", "out_local", "validation_accuracy"} <= record.keys()


@pytest.mark.integration
def test_analyses_and_reports_read_runs_with_validation(validated: Path, tmp_path: Path) -> None:
    run = read_run(validated)
    names = ["forgetting", "psnr", "membership"]
    found = run_analyses([run], names, tmp_path / "analysis", Options(), lambda message: None)
    assert set(found) == set(names)
    code, _, err = invoke("report", validated, "--out", tmp_path / "report")
    assert (code, err) == (0, "")
    assert "validation_accuracy (%)" in (tmp_path / "report" / "index.html").read_text()


# without it


def test_without_validation_nothing_changes() -> None:
    e = Experiment.read({key: value for key, value in TABLE.items() if key != "validation"})
    assert e.validation == 0
    assert run_name(e) == run_name(made(validation=0)) != run_name(made())
    data = build_data(e)
    f = build_model(e, data.spec)
    assert type(data.recorded_set(f, 32)) is TestSet
    assert len(data.train.y) == len(datasets.load("digits").train.y)


def test_the_partition_command_shows_training_rows(tmp_path: Path) -> None:
    words = ["partition", "--set", f"validation={SHARE}", "--out", tmp_path / "p.png"]
    code, out, _ = invoke(*words)
    assert code == 0
    rows, _ = split_rows(made(), datasets.load("digits"))
    assert str(max(map(len, rows))) in out


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1", "validation = 1: must be less than 1"),
        ("-0.1", "validation = -0.1: must be greater than or equal to 0"),
        ("nan", "validation = nan: must be a finite number"),
        ("some", "validation = 'some': must be a number"),
        ("true", "validation = True: must be a number"),
        ("0.000001", "validation = 1e-06: no client has so many rows of a class"),
    ],
)
def test_impossible_shares_are_refused(value: str, message: str, tmp_path: Path) -> None:
    code, _, err = invoke("run", "--set", f"validation={value}", "--out", tmp_path / "run")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
