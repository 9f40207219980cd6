"""Runs with `personal = true`: what they record, and that nothing else changes."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, pstdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedadb
from fedadb import datasets
from fedadb.core.data import DomainLabels
from fedadb.core.errors import BadInput
from fedadb.engine.evaluate import in_and_out_of_distribution
from fedadb.engine.personal import own_accuracy
from fedadb.engine.pool import Pool
from fedadb.experiment import run as runs
from fedadb.experiment import simulation
from fedadb.experiment.build import build_data, build_model
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.personal import personal_record, worst_tenth
from fedadb.experiment.precheck import precheck
from fedadb.experiment.simulation import Simulation
from fedadb.experiment.stored import read_run
from fedadb.storage.records import Record, read_records
from fedadb.storage.tensorfile import read_tensors
from tests.engine.test_personal import Remembering, WrongShape

TABLE: dict[str, Any] = {
    "rounds": 5,
    "local": {"epochs": 1},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "fedadb", "steps": 2},
    "federation": {"clients": 10, "participation": 0.3},
    "engine": {"workers": 1},
}
EVALUATED = (2, 4, 5)  # rounds


def made(**changes: Any) -> Experiment:
    return Experiment.read({**TABLE, "personal": True, "personal_every": 2, **changes})


def numbers(directory: Path) -> list[Record]:
    records = read_records(directory / "rounds.jsonl")
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in records]


def accuracies(directory: Path, t: int) -> dict[str, list[float | None]]:
    found: dict[str, Any] = json.loads((directory / f"personal-{t:04}.json").read_text())
    return found


def require_equal_runs(one: Path, other: Path) -> None:
    assert numbers(one) == numbers(other)
    for t in EVALUATED:
        assert accuracies(one, t) == accuracies(other, t)
    names = [sorted(p.name for p in (run / "memories").glob("*")) for run in (one, other)]
    assert names[0] == names[1]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("personal") / "run"
    fedadb.run(made(), out)
    return out


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clients keep a memory, and every round changes that of three."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("remembering") / "run"
    fedadb.run(made(algorithm=Remembering()), out)
    return out


# records


@pytest.mark.integration
def test_some_rounds_and_the_last_one_have_numbers_over_clients(evaluated: Path) -> None:
    keys = [
        f"personal_{kind}_{statistic}"
        for kind in ("global", "tuned", "head")
        for statistic in ("mean", "worst", "spread")
    ]
    for record in read_records(evaluated / "rounds.jsonl"):
        t = record["round"]
        own = [key for key in record if key.startswith("personal_")]
        assert own == ([*keys, "personal_seconds"] if t in EVALUATED else [])
        assert (evaluated / f"personal-{t:04}.json").exists() == (t in EVALUATED)
        if t in EVALUATED:
            for kind, of_clients in accuracies(evaluated, t).items():
                values = sorted(a for a in of_clients if a is not None)
                assert len(values) == 10  # also clients that never took part
                assert record[f"personal_{kind}_mean"] == fmean(values)
                assert record[f"personal_{kind}_worst"] == values[0]
                assert record[f"personal_{kind}_spread"] == pstdev(values)
    taken_part = {k for record in numbers(evaluated) for k in record["clients"]}
    assert len(taken_part) < 10


@pytest.mark.integration
def test_the_global_model_is_tested_in_the_proportions_of_each_client(evaluated: Path) -> None:
    """Σ_c p_c A_c, from the run's weights and the record's accuracy per class."""
    run, last = read_run(evaluated), read_records(evaluated / "rounds.jsonl")[-1]
    scores = run.require_data().test_set(run.f, 32).evaluate(run.w)
    assert scores.class_accuracy == last["class_accuracy"]
    counts = json.loads((evaluated / "partition.json").read_text())["counts"]
    expected = [in_and_out_of_distribution(scores.class_accuracy, n)[0] for n in counts]
    assert accuracies(evaluated, 5)["global"] == pytest.approx(expected)


def test_the_worst_tenth_is_rounded_up_and_missing_clients_do_not_count() -> None:
    assert worst_tenth([0.5, 0.1, 0.9]) == 0.1
    assert worst_tenth([i / 100 for i in range(21)]) == pytest.approx((0 + 1 + 2) / 300)
    record = personal_record({"global": [0.2, math.nan, 0.4], "tuned": [math.nan] * 3})
    assert record["personal_global_mean"] == pytest.approx(0.3)
    assert record["personal_global_spread"] == pytest.approx(0.1)
    assert math.isnan(record["personal_tuned_mean"])


def test_clients_of_several_domains_are_tested_on_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits = datasets.load("digits")
    n, m = len(splits.train.y), len(splits.test.y)
    domains = DomainLabels(("print", "script"), torch.arange(n) % 2, torch.arange(m) % 2)
    monkeypatch.setattr(datasets, "load", lambda *_: splits._replace(domains=domains))
    partition = {"name": "domains", "classes": 10}
    e = made(federation={"clients": 4, "participation": 0.5, "partition": partition})
    data = build_data(e)
    cells = np.array(data.cell_counts).reshape(4, 2, 10)
    assert cells.sum(1).tolist() == data.summary.counts
    assert (cells.sum(2) == 0).any(1).all()  # each client has one domain
    test = data.test_set(build_model(e, data.spec), 32)
    only_print = [rows if cell < 10 else 0 for cell, rows in enumerate(test.counts)]
    of_domain = [float(bool(own[:10][0])) for own in data.cell_counts]
    assert [own_accuracy(only_print, test.counts, own) for own in data.cell_counts] == of_domain
    assert set(of_domain) == {0.0, 1.0}


# nothing else changes


@pytest.mark.integration
@pytest.mark.parametrize("algorithm", ["fedadb", "memory"])
def test_weights_and_memories_are_those_of_a_run_without(
    algorithm: str, evaluated: Path, remembering: Path, tmp_path: Path
) -> None:
    own = {"algorithm": Remembering()} if algorithm == "memory" else {}
    there = remembering if own else evaluated
    here = tmp_path / "plain"
    fedadb.run(Experiment.read({**TABLE, **own}), here)
    checkpoints = [(run / "checkpoint.safetensors").read_bytes() for run in (here, there)]
    assert checkpoints[0] == checkpoints[1]
    weights = [read_tensors(run / "model.safetensors", "")[0] for run in (here, there)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    without = [
        {k: v for k, v in r.items() if not k.startswith("personal_")} for r in numbers(there)
    ]
    assert numbers(here) == without
    kept = [{p.name: p.read_bytes() for p in (run / "memories").glob("*")} for run in (here, there)]
    assert kept[0] == kept[1]
    assert bool(kept[0]) == bool(own)


@pytest.mark.integration
def test_worker_processes_give_the_same_numbers(remembering: Path, tmp_path: Path) -> None:
    """A round is then evaluated when the next one has already changed memories."""
    fedadb.run(made(algorithm=Remembering(), engine={"workers": 2}), tmp_path / "run")
    require_equal_runs(tmp_path / "run", remembering)


@pytest.mark.integration
def test_all_workers_evaluate_even_if_a_round_has_one_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[int] = []

    class Counted(Pool):
        def __init__(self, *given: Any) -> None:
            pools.append(given[3])
            super().__init__(*given)

    monkeypatch.setattr(simulation, "Pool", Counted)
    for workers in (1, 2):
        federation = {"clients": 4, "participation": 0.25}
        e = made(rounds=2, federation=federation, engine={"workers": workers})
        fedadb.run(e, tmp_path / str(workers))
    assert pools == [2]
    assert accuracies(tmp_path / "1", 2) == accuracies(tmp_path / "2", 2)


@pytest.mark.integration
def test_a_client_that_never_took_part_has_a_head_of_its_own(tmp_path: Path) -> None:
    """FedRoD's clients start with a head of zeros, and one local round trains it."""
    out = tmp_path / "run"
    fedadb.run(made(algorithm="fedrod", rounds=2), out)
    taken_part = {k for record in numbers(out) for k in record["clients"]}
    found = accuracies(out, 2)
    assert set(found) == {"global", "tuned", "head"}
    assert taken_part == {int(p.stem.split("-")[1]) for p in (out / "memories").glob("*")}
    absent = [k for k in range(10) if k not in taken_part]
    assert absent
    assert all(found["head"][k] is not None for k in absent)
    assert found["head"] != found["tuned"]
    better = [k for k in absent if found["head"][k] > found["global"][k]]  # type: ignore[operator]
    assert better


@pytest.mark.integration
def test_a_resumed_run_has_the_same_numbers(remembering: Path, tmp_path: Path) -> None:
    e = made(algorithm=Remembering(), engine={"workers": 2, "overlap": False})
    for _ in range(2):
        with runs.start_run(e, tmp_path / "run") as active:
            next(active.rounds)
    fedadb.run(e, tmp_path / "run")
    require_equal_runs(tmp_path / "run", remembering)


@pytest.mark.integration
def test_a_run_that_ends_before_its_record_is_written_evaluates_again(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runs, "personal_record", lambda accuracies: os.stat("nowhere"))
        with pytest.raises(FileNotFoundError):
            fedadb.run(made(), tmp_path / "run")
    assert (tmp_path / "run" / "personal-0002.json").exists()
    assert len(numbers(tmp_path / "run")) == 1
    fedadb.run(made(), tmp_path / "run")
    require_equal_runs(tmp_path / "run", evaluated)


@pytest.mark.integration
def test_stacked_clients_are_evaluated_one_by_one(tmp_path: Path) -> None:
    e = made(rounds=1, engine={"cohort": "stacked"})
    fedadb.run(e, tmp_path / "run")
    assert set(accuracies(tmp_path / "run", 1)) == {"global", "tuned", "head"}


@pytest.mark.integration
def test_vectors_and_a_method_without_a_head_of_its_own(tmp_path: Path) -> None:
    """SCAFFOLD's clients have memories, which fine-tuning does not need."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 4
    x = torch.randn(200, 6, generator=rng) + torch.eye(4, 6)[y]
    e = Experiment(
        dataset=fedadb.Data(x[:150], y[:150], x[150:], y[150:]),
        algorithm="scaffold",
        rounds=2,
        personal=True,
        local={"epochs": 1},
        filter=[{"name": "clip", "norm": 1.0}],
        engine={"workers": 1},
    )
    history = fedadb.run(e, tmp_path / "run")
    assert "personal_tuned_mean" not in history.rounds[0]
    assert history.rounds[1]["personal_tuned_mean"] > 0.25
    assert set(accuracies(tmp_path / "run", 2)) == {"global", "tuned"}


@pytest.mark.integration
def test_progress_is_shown(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    @contextmanager
    def progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        seen[f"{what}: {total} {unit}"] = 0

        def advance(done: int) -> None:
            seen[f"{what}: {total} {unit}"] += done

        yield advance

    with runs.start_run(made(rounds=2), tmp_path / "run", progress) as active:
        list(active.rounds)
    assert seen["personal models after round 2: 10 clients"] == 10


@pytest.mark.integration
def test_it_does_not_count_as_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each evaluation advances by a day."""
    late = [0]

    def slow(*_: Any) -> dict[str, list[float]]:
        late[0] += 86400
        return {"global": [0.5]}

    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + late[0])
    monkeypatch.setattr(runs, "time", clock)
    monkeypatch.setattr(Simulation, "personal_accuracies", slow)
    records = fedadb.run(made(personal_every=1, rounds=3), tmp_path / "run").rounds
    assert all(record["personal_seconds"] > 86000 > record["seconds"] for record in records)


# settings


def test_a_run_with_personal_models_is_another_run() -> None:
    plain = Experiment.read(TABLE)
    assert not plain.personal
    assert not plain.evaluates_personal(plain.rounds)
    assert run_name(plain) != run_name(made())
    assert [t for t in range(1, 6) if made(personal_every=3).evaluates_personal(t)] == [3, 5]
    assert [t for t in range(1, 6) if made(personal_every=9).evaluates_personal(t)] == [5]
    assert Experiment.read(made().table()) == made()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"personal_every": 0}, "personal_every = 0: must be greater than or equal to 1"),
        ({"personal_every": 2.5}, r"personal_every = 2\.5: must be a"),
        ({"personal": "yes"}, "personal = 'yes': must be "),
    ],
)
def test_impossible_values_are_refused(table: dict[str, Any], message: str) -> None:
    for read in (precheck, Experiment.read):
        with pytest.raises(BadInput, match=message):
            read(table)


def test_a_wrong_hook_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    e = made(algorithm=WrongShape())
    with pytest.raises(BadInput, match=r"WrongShape\.personal returns logits of shape"):
        fedadb.run(e, tmp_path / "run")
    assert not (tmp_path / "run").exists()
