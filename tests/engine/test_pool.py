"""Workers give the bits of one process, and leave nothing behind however things end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Context, Round, Weights
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import ImmediateEvaluator, TestSet
from fedadb.engine.federate import Snapshot, federate
from fedadb.engine.local import Learner
from fedadb.engine.pool import Pool
from tests.conftest import toy_shard
from tests.test_every_algorithm import CLIENTS, model, shards

PLAN = LocalPlan(2, 8, lr=0.05)
Any_ = Algorithm[Any, Any, Any]


@contextmanager
def pool(algorithm: Any_, workers: int, data: list[Shard] | None = None) -> Iterator[Pool]:
    f, test = model(algorithm), toy_shard(50)
    exam = TestSet(f, test.examples, test.transform, batch_size=8)
    learner = Learner(algorithm, f, PLAN)
    with closing(Pool(learner, data or shards(), Stream(1), workers, exam)) as cohort:
        yield cohort
    assert not multiprocessing.active_children()


def play(algorithm: Any_, cohort: Any, rounds: int = 3) -> list[Snapshot[Any]]:
    f = model(algorithm)
    start = Snapshot(Round(0, rounds, CLIENTS, 60), algorithm.init(f.weights()))
    return list(
        federate(
            algorithm,
            f,
            cohort,
            choose=lambda t: [3, 0, 2, 1][: 2 + t % 3],
            rng=Stream(1),
            start=start,
        )
    )


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_workers_give_the_bits_of_one_process(name: str, workers: int) -> None:
    algorithm = ALGORITHMS[name]()
    plain = OneByOne(Learner(algorithm, model(algorithm), PLAN), shards(), Stream(1))
    expected = play(algorithm, plain)
    with pool(algorithm, workers) as cohort:
        for ours, theirs in zip(play(algorithm, cohort), expected, strict=True):
            assert torch.equal(ours.server.w.flat, theirs.server.w.flat)
            for mine, plain_reply in zip(ours.replies, theirs.replies, strict=True):
                assert torch.equal(mine.w.flat, plain_reply.w.flat)
                assert mine.examples == plain_reply.examples
                assert str(mine.measured) == str(dict(plain_reply.measured))
        if name == "feddyn":
            assert sorted(cohort.memories) == sorted(plain.memories)
            for k, memory in plain.memories.items():
                assert torch.equal(cohort.memories[k].g.flat, memory.g.flat)


def test_evaluation_beside_training_gives_the_same_scores() -> None:
    algorithm = FedAvg()
    with pool(algorithm, 2) as cohort:
        at_once = ImmediateEvaluator(cohort.exam)
        f = cohort.learner.f
        for t in range(1, 6):
            w = (1 + 0.1 * t) * f.weights()
            at_once.begin(w)
            if t > 1:
                cohort.begin(w)
            cohort(Weights(w), [0, 1, 2], Round(t, 9, CLIENTS, 60))
            if t > 1:
                assert cohort.scores() == at_once.scores()
                assert cohort.scores() == at_once.scores()  # asking twice does no harm


class Fails(FedAvg):
    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        if len(ctx.counts.nonzero()) == 1:
            raise self.what()
        return super().loss(f, w, batch, ctx)

    def what(self) -> Exception:
        return Fault("no more")


class Breaks(Fails):
    def what(self) -> Exception:
        return ZeroDivisionError("a bug")


class Dies(Fails):
    def what(self) -> Exception:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class Hoards(FedAvg):
    def measure(self, f: Model, batch: Any, ctx: Context[Any, Any]) -> dict[str, Tensor]:
        return {"all": torch.zeros(100_000)}


def test_what_goes_wrong_in_a_worker_is_told() -> None:
    for algorithm, kind, message in (
        (Fails(), Fault, r"client 1 in round 1: no more"),
        (Breaks(), RuntimeError, r"(?s)Traceback.*a bug.*This was client 1 in round 1"),
        (Hoards(), Fault, r"reply/measured/all.* bytes in a place for \d+"),
        (Dies(), Fault, "ended while it trained client 1 in round 1 with exit code -9"),
    ):
        with pool(algorithm, 2) as cohort, pytest.raises(kind, match=message):
            cohort(Weights(cohort.learner.f.weights()), [0, 1, 2], Round(1, 9, CLIENTS, 60))
    empty = [replace(shard, rows=shard.rows[:0]) for shard in shards()]
    with (
        pool(FedAvg(), 2, empty) as cohort,
        pytest.raises(BadInput, match="client 2 in round 1: it has no rows"),
    ):
        cohort(Weights(cohort.learner.f.weights()), [2], Round(1, 9, CLIENTS, 60))


def test_a_worker_that_ends_between_rounds_is_told() -> None:
    with pool(FedAvg(), 2) as cohort:
        sent = Weights(cohort.learner.f.weights())
        cohort(sent, [0, 1], Round(1, 9, CLIENTS, 60))
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        with pytest.raises(Fault, match="a worker process ended"):
            cohort(sent, [0, 1], Round(2, 9, CLIENTS, 60))


class More(NamedTuple):
    w: Vector
    extra: Tensor


def test_messages_may_grow_while_an_evaluation_goes_on() -> None:
    with pool(FedAvg(), 2) as cohort:
        w = cohort.learner.f.weights()
        at_once = ImmediateEvaluator(cohort.exam)
        for t, size in enumerate((10, 100_000, 10, 300_000), start=1):
            replies = cohort(More(w, torch.ones(size)), [0, 1, 2], Round(t, 9, CLIENTS, 60))
            assert len(replies) == 3
            if t > 1:
                assert cohort.scores() == at_once.scores()  # begun before workers were forked anew
            at_once.begin(t * w)
            cohort.begin(t * w)


@pytest.mark.integration
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_run(how: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", "--out", str(out), "--set", "engine.workers=3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedadb", *words],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while not (out / "checkpoint.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 3
    process.send_signal(how)
    process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
