"""Ray's actors give the bits of one process, however many of them are lost."""

import gc
import json
import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedadb
from fedadb.algorithms.fedavg import FedAvg
from fedadb.cluster import connection
from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import pack
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine import scheduling
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.local import Learner
from fedadb.experiment import run as runs
from fedadb.experiment.build import FederatedData, build_data, build_model, sample_clients
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import Engine
from fedadb.kernels import library
from fedadb.storage.tensorfile import read_tensors
from tests.cluster.failing import Dies, DiesOnce, Fails
from tests.conftest import GREY_IMAGES
from tests.engine.test_personal import Remembering
from tests.test_every_algorithm import CLIENTS, model, shards

ray = pytest.importorskip("ray")
from fedadb.cluster.actor import versions  # noqa: E402
from fedadb.cluster.cohort import RayCohort  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("ray")]
PLAN = LocalPlan(2, 8, lr=0.05)
SMALL: dict[str, Any] = {
    "rounds": 3,
    "federation": {"clients": 6, "participation": 0.5},
    "local": {"epochs": 1},
}


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves files and processes to the garbage collector
        for name, value in connection.SETTINGS.items():
            os.environ.setdefault(name, value)
        ray.init(
            "local",
            num_cpus=2,
            object_store_memory=150 << 20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        gc.collect()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()
        gc.collect()


def play(e: Experiment, data: FederatedData, cohort: Any) -> list[Snapshot[Any]]:
    before = Round(0, e.rounds, e.federation.clients, data.summary.examples)
    return list(
        federate(
            cohort.learner,
            cohort,
            choose=lambda t: sample_clients(e.federation, e.seed, t),
            rng=Stream(e.seed),
            start=initial(cohort.learner, before),
            inspect=lambda reply: reply,
        )
    )


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("fedavg", 1),
        ("feddyn", 2),
        ("fedadb", 1),
        ("scaffold", 2),
        pytest.param("fedrod", 2, marks=pytest.mark.slow),
        pytest.param("fedcurv", 1, marks=pytest.mark.slow),
        pytest.param("feddisco", 2, marks=pytest.mark.slow),
    ],
)
def test_actors_are_bit_identical_to_one_process(name: str, workers: int) -> None:
    e = Experiment(algorithm=name, **SMALL)
    data = build_data(e)
    learner = Learner(e.algorithm, build_model(e, data.spec), e.local)
    plain = OneByOne(learner, data.shards, Stream(e.seed))
    expected = play(e, data, plain)
    with closing(RayCohort(learner, data.shards, Stream(e.seed), workers)) as cohort:
        for ours, theirs in zip(play(e, data, cohort), expected, strict=True):
            assert torch.equal(ours.server.w.flat, theirs.server.w.flat)
            for mine, plain_reply in zip(ours.replies, theirs.replies, strict=True):
                assert torch.equal(mine.inspected.w.flat, plain_reply.inspected.w.flat)
                assert mine.examples == plain_reply.examples
                assert str(mine.measured) == str(dict(plain_reply.measured))
        assert sorted(cohort.memories) == sorted(plain.memories)
        for k, memory in plain.memories.items():
            ours_kept, kept = pack(cohort.memories[k]), pack(memory)
            assert all(torch.equal(ours_kept[part], tensor) for part, tensor in kept.items())
            assert bool(kept) == (name in ("feddyn", "fedrod", "fedcurv", "scaffold"))


@pytest.mark.parametrize("one", [fedadb.Int8(), fedadb.TopK(share=0.1)])
def test_compressed_replies_of_actors_are_bit_identical(one: fedadb.Filter) -> None:
    e = Experiment(algorithm="fedavg", filter=[one], **SMALL)
    data = build_data(e)
    learner = Learner(e.algorithm, build_model(e, data.spec), e.local, e.filter)
    plain = OneByOne(learner, data.shards, Stream(e.seed))
    expected = play(e, data, plain)
    with closing(RayCohort(learner, data.shards, Stream(e.seed), 1)) as cohort:
        for ours, theirs in zip(play(e, data, cohort), expected, strict=True):
            assert torch.equal(ours.server.w.flat, theirs.server.w.flat)
            assert [note.bytes for note in ours.replies] == [note.bytes for note in theirs.replies]
        for k, memory in plain.memories.items():
            ours_kept, kept = pack(cohort.memories[k]), pack(memory)
            assert all(torch.equal(ours_kept[part], tensor) for part, tensor in kept.items())


def cohort_of(
    algorithm: Algorithm[Any, Any, Any, Any], data: list[Shard] | None = None
) -> RayCohort:
    learner = Learner(algorithm, model(algorithm), PLAN)
    return RayCohort(learner, data or shards(), Stream(1), workers=1)


def train(cohort: RayCohort, clients: list[int]) -> list[Vector]:
    sent = Weights(cohort.learner.f.weights())
    return [reply.w for reply in cohort(sent, clients, Round(1, 9, CLIENTS, 60))]


def test_a_client_whose_actor_is_lost_is_trained_again(tmp_path: Path) -> None:
    plain = OneByOne(Learner(FedAvg(), model(FedAvg()), PLAN), shards(), Stream(1))
    sent = Weights(plain.learner.f.weights())
    expected = [r.w for r in plain(sent, [0, 1, 2], Round(1, 9, CLIENTS, 60))]
    with closing(cohort_of(DiesOnce(mark=str(tmp_path / "mark")))) as cohort:
        replies = train(cohort, [0, 1, 2])
        assert (tmp_path / "mark").exists()
        assert all(torch.equal(a.flat, b.flat) for a, b in zip(replies, expected, strict=True))
        for actor in cohort._free:  # between rounds
            ray.kill(actor)
        assert torch.equal(train(cohort, [0])[0].flat, expected[0].flat)


def test_a_client_that_loses_every_actor_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "MAX_LOSSES", 2)
    message = (
        r"client 1 in round 1: 2 workers ended while they trained it: .* fewer engine\.workers"
    )
    with pytest.raises(Fault, match=message):
        train(cohort_of(Dies()), [0, 1])


def test_what_goes_wrong_in_an_actor_is_reported() -> None:
    with pytest.raises(Fault, match=r"^client 1 in round 1: no more$"):
        train(cohort_of(Fails()), [0, 1])
    empty = [replace(shard, rows=shard.rows[:0]) for shard in shards()]
    with pytest.raises(BadInput, match=r"^client 2 in round 1: it has no rows to train on$"):
        train(cohort_of(FedAvg(), empty), [2])


def test_a_machine_with_other_versions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedadb.cluster.cohort.versions", lambda f: "fedadb 9 and torch 9")
    with pytest.raises(BadInput, match="this one has fedadb 9 and torch 9: results would"):
        train(cohort_of(FedAvg()), [0])


@pytest.mark.usefixtures("needs_kernels")
def test_actors_must_have_the_same_kernels(request: pytest.FixtureRequest) -> None:
    e = Experiment(algorithm="fedavg", model="lenet")
    torchs = build_model(e.model_copy(update={"engine": Engine(kernels="torch")}), GREY_IMAGES)
    ours = build_model(e, GREY_IMAGES)
    assert versions(ours).endswith(f" and the kernels fedadb {library.name()}")
    assert versions(torchs).endswith(" and the kernels torch")
    request.getfixturevalue("no_compiler")  # the model comes from a machine that has one
    library.library.cache_clear()
    assert versions(ours).endswith(" and no kernels (no C++ compiler is installed)")
    assert versions(torchs).endswith(" and the kernels torch")


def test_a_run_resumes_with_another_backend(tmp_path: Path) -> None:
    e = Experiment(algorithm="feddyn", engine={"workers": 1}, **SMALL)
    on_ray = Experiment(algorithm="feddyn", engine={"backend": "ray", "workers": 1}, **SMALL)
    whole = fedadb.run(e, tmp_path / "whole")
    for i, (first, then) in enumerate([(e, on_ray), (on_ray, e)]):
        out = tmp_path / str(i)
        with runs.start_run(first, out) as active:
            next(active.rounds)
        assert fedadb.run(then, out).accuracy == whole.accuracy
        ours, theirs = (
            read_tensors(at / "model.safetensors", "")[0] for at in (out, whole.directory)
        )
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.slow  # four actors start
def test_personal_models_on_actors_beside_those_that_hold_all_cpus(tmp_path: Path) -> None:
    engines = ({"workers": 1}, {"backend": "ray", "workers": 2})
    table = {**SMALL, "rounds": 1, "personal": True, "algorithm": Remembering()}
    for i, engine in enumerate(engines):
        fedadb.run(Experiment(engine=engine, **table), tmp_path / str(i))
    here, there = (json.loads((tmp_path / i / "personal-0001.json").read_text()) for i in "01")
    assert here == there
    assert list(here) == ["global", "tuned", "head"]


def test_validation_data_are_evaluated_beside_ray(tmp_path: Path) -> None:
    engines = ({"workers": 1}, {"backend": "ray", "workers": 1})
    here, there = (
        fedadb.run(Experiment(validation=0.2, engine=engine, **SMALL), tmp_path / str(i))
        for i, engine in enumerate(engines)
    )
    names = ("accuracy", "validation_accuracy", "loss")
    for ours, theirs in zip(here.rounds, there.rounds, strict=True):
        assert [ours[name] for name in names] == [theirs[name] for name in names]


def test_what_ray_cannot_do_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"engine\.cohort = 'stacked'.*choose one of them"):
        Experiment(engine={"backend": "ray", "cohort": "stacked"})
    on_ray = Experiment(engine={"backend": "ray"}, **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr("fedadb.experiment.simulation.pick_device", lambda name: torch.device("cuda"))
        with pytest.raises(BadInput, match=r"train on CPUs.*set engine\.device = 'cpu'"):
            fedadb.run(on_ray, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        patch.delitem(sys.modules, "fedadb.cluster.connection")
        with pytest.raises(BadInput, match=r"ray is not installed; pip install 'fedadb\[ray\]'"):
            fedadb.run(on_ray, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # as in a program of its own
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        e = Experiment(engine={"backend": "ray", "address": address}, **SMALL)
        message = rf"engine\.address = '{address}': cannot be reached: .* within 3 seconds"
        with pytest.raises(BadInput, match=message):
            fedadb.run(e, tmp_path / "run")
    assert not (tmp_path / "run").exists()
