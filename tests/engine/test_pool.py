"""Workers give the bits of one process, and leave nothing behind however things end."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.packing import pack
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import ImmediateEvaluator, TestSet
from fedadb.engine.federate import Snapshot, federate
from fedadb.engine.local import Learner
from fedadb.engine.pool import Pool
from fedadb.engine.worker import Worker
from tests.command_line import start
from tests.conftest import toy_shard
from tests.test_every_algorithm import CLIENTS, model, quick, shards

PLAN = LocalPlan(2, 8, lr=0.05)
Any_ = Algorithm[Any, Any, Any, Any]


@contextmanager
def pool(algorithm: Any_, workers: int, data: list[Shard] | None = None) -> Iterator[Pool]:
    f, test = model(algorithm), toy_shard(50)
    test_set = TestSet(f, test.examples, test.transform, batch_size=8)
    learner = Learner(algorithm, f, PLAN)
    with closing(Pool(learner, data or shards(), Stream(1), workers, test_set)) as cohort:
        yield cohort
    assert not multiprocessing.active_children()


def play(algorithm: Any_, cohort: Any, rounds: int = 3) -> list[Snapshot[Any]]:
    f = model(algorithm)
    start = Snapshot(Round(0, rounds, CLIENTS, 60), algorithm.init(f.weights()))
    return list(
        federate(
            cohort.learner,
            cohort,
            choose=lambda t: [3, 0, 2, 1][: 2 + t % 3],
            rng=Stream(1),
            start=start,
            inspect=lambda reply: reply,
        )
    )


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_workers_are_bit_identical_to_one_process(name: str, workers: int) -> None:
    algorithm = quick(name)
    plain = OneByOne(Learner(algorithm, model(algorithm), PLAN), shards(), Stream(1))
    expected = play(algorithm, plain)
    with pool(algorithm, workers) as cohort:
        for ours, theirs in zip(play(algorithm, cohort), expected, strict=True):
            assert torch.equal(ours.server.w.flat, theirs.server.w.flat)
            for mine, plain_reply in zip(ours.replies, theirs.replies, strict=True):
                require_equal(mine.inspected, plain_reply.inspected)
                assert mine.bytes == plain_reply.bytes
        assert sorted(cohort.memories) == sorted(plain.memories)
        for k, memory in plain.memories.items():
            require_equal(cohort.memories[k], memory)


def require_equal(ours: Any, theirs: Any) -> None:
    """Two trees have the same tensors, to the bit."""
    mine, others = pack(ours), pack(theirs)
    assert mine.keys() == others.keys()
    for path, tensor in mine.items():
        torch.testing.assert_close(tensor, others[path], rtol=0, atol=0, equal_nan=True)


def test_evaluation_beside_training_gives_the_same_scores() -> None:
    algorithm = FedAvg()
    with pool(algorithm, 2) as cohort:
        immediate = ImmediateEvaluator(cohort.test_set)
        f = cohort.learner.f
        for t in range(1, 6):
            w = (1 + 0.1 * t) * f.weights()
            immediate.start(w)
            if t > 1:
                cohort.start(w)
            list(cohort(Weights(w), [0, 1, 2], Round(t, 9, CLIENTS, 60)))
            if t > 1:
                assert cohort.scores() == immediate.scores()
                assert cohort.scores() == immediate.scores()  # asking twice does no harm


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


def test_what_goes_wrong_in_a_worker_is_reported() -> None:
    for algorithm, kind, message in (
        (Fails(), Fault, r"client 1 in round 1: no more"),
        (Breaks(), RuntimeError, r"(?s)Traceback.*a bug.*This was client 1 in round 1"),
        (Hoards(), BadInput, r"reply/measured/all.* bytes do not fit into \d+"),
        (Dies(), Fault, "client 1 in round 1: 3 workers ended while they trained it: .* killed"),
    ):
        with pool(algorithm, 2) as cohort, pytest.raises(kind, match=message):
            list(cohort(Weights(cohort.learner.f.weights()), [0, 1, 2], Round(1, 9, CLIENTS, 60)))
    empty = [replace(shard, rows=shard.rows[:0]) for shard in shards()]
    with (
        pool(FedAvg(), 2, empty) as cohort,
        pytest.raises(BadInput, match="client 2 in round 1: it has no rows"),
    ):
        list(cohort(Weights(cohort.learner.f.weights()), [2], Round(1, 9, CLIENTS, 60)))


def once(mark: Path) -> bool:
    """Whether this is the first call, in any process, with this path."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class FailsOnce(FedAvg):
    """The worker of the client with one class fails in a given way, the first time."""

    mark: str = ""
    how: str = ""

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        if len(ctx.counts.nonzero()) == 1 and once(Path(self.mark)):
            if self.how == "memory":
                raise MemoryError
            if self.how == "torch memory":
                torch.empty(1 << 60)
            os.kill(os.getpid(), signal.Signals[self.how])
        return super().loss(f, w, batch, ctx)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGSTOP", "memory", "torch memory"])
def test_a_lost_worker_is_replaced_and_its_client_trained_again(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = FailsOnce(mark=str(tmp_path / "mark"), how=how)
    healthy = OneByOne(Learner(FedAvg(), model(FedAvg()), PLAN), shards(), Stream(1))
    expected = play(FedAvg(), healthy)

    def impatient_wait(connections: Any, timeout: float) -> Any:
        """Time passes at once while a worker is stopped."""
        stopped = any(is_stopped(child.pid or 0) for child in multiprocessing.active_children())
        return [] if stopped else wait(connections, timeout)

    monkeypatch.setattr("fedadb.engine.pool.wait", impatient_wait)
    with pool(algorithm, 2) as cohort:
        for t, (ours, theirs) in enumerate(zip(play(algorithm, cohort), expected, strict=True)):
            assert torch.equal(ours.server.w.flat, theirs.server.w.flat), t
    assert (tmp_path / "mark").exists()


def test_an_evaluation_survives_the_loss_of_a_worker() -> None:
    with pool(FedAvg(), 2) as cohort:
        immediate = ImmediateEvaluator(cohort.test_set)
        w = cohort.learner.f.weights()
        list(cohort(Weights(w), [0, 1], Round(1, 9, CLIENTS, 60)))
        for moment in ("before", "during", "idle"):
            if moment == "before":
                kill_workers(1)
            cohort.start(2 * w)
            if moment == "during":
                kill_workers(2)
            immediate.start(2 * w)
            assert cohort.scores() == immediate.scores()
            if moment == "idle":
                kill_workers(2)
        replies = list(cohort(Weights(w), [0, 1], Round(2, 9, CLIENTS, 60)))
        assert len(replies) == 2


def test_a_worker_killed_with_the_lock_in_its_hands_blocks_nobody() -> None:
    with pool(FedAvg(), 2) as cohort:
        w = cohort.learner.f.weights()
        list(cohort(Weights(w), [0, 1], Round(1, 9, CLIENTS, 60)))
        assert cohort._evaluation is not None
        cohort._evaluation.lock.acquire()  # as if a worker had been killed while it held it
        immediate = ImmediateEvaluator(cohort.test_set)
        immediate.start(w)
        cohort.start(w)
        kill_workers(1)
        assert cohort.scores() == immediate.scores()


def kill_workers(count: int) -> None:
    for child in multiprocessing.active_children()[:count]:
        child.kill()
        child.join()


def test_workers_that_end_at_once_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "serve", lambda *_: os._exit(3))
    message = r"3 worker processes ended before they trained .* ended with exit code 3"
    message += r"|client \d in round 1: 3 workers ended while they trained it: .* exit code 3"
    with pool(FedAvg(), 2) as cohort, pytest.raises(Fault, match=message):
        list(cohort(Weights(cohort.learner.f.weights()), [0, 1], Round(1, 9, CLIENTS, 60)))


class More(NamedTuple):
    w: Vector
    extra: Tensor


def test_messages_may_grow_while_an_evaluation_resumes() -> None:
    with pool(FedAvg(), 2) as cohort:
        w = cohort.learner.f.weights()
        immediate = ImmediateEvaluator(cohort.test_set)
        for t, size in enumerate((10, 100_000, 10, 300_000), start=1):
            sent = More(w, torch.ones(size))
            assert len(list(cohort(sent, [0, 1, 2], Round(t, 9, CLIENTS, 60)))) == 3
            if t > 1:
                assert (
                    cohort.scores() == immediate.scores()
                )  # begun before the workers were replaced
            immediate.start(t * w)
            cohort.start(t * w)


@pytest.mark.integration
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_run(how: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("run", "--out", out, "--set", "engine.workers=3")
    while not (out / "checkpoint.safetensors").exists():
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 3
    os.kill(process.pid, how)
    process.join()
    deadline = time.monotonic() + 300
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
