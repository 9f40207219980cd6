"""How long an experiment will take, from a few steps of it."""

import time
from dataclasses import replace
from typing import Any, NamedTuple

from fedadb import datasets
from fedadb.core.algorithm import Round
from fedadb.core.stream import Stream
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import Learner
from fedadb.engine.process import cores
from fedadb.experiment.build import build
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import one_thread

ROWS = 64  # of the steps that are measured; a step's time goes with its rows


class Cost(NamedTuple):
    train: float  # seconds to train on a row
    test: float  # to evaluate one
    server: float  # for what is sent in a round
    examples: int
    test_rows: int


class Estimator:
    """Seconds a round. What runs of the same data, model and algorithm share is measured once."""

    def __init__(self) -> None:
        self._known: dict[str, Cost] = {}

    def seconds(self, e: Experiment) -> float | None:
        """Of a round of this experiment, on this machine; None without its data."""
        if not datasets.present(e.dataset):
            return None
        key = repr((e.dataset, e.model, e.algorithm, e.engine))
        if key not in self._known:
            self._known[key] = measure(e)
        cost = self._known[key]
        rows = e.federation.sampled * cost.examples / e.federation.clients
        workers = cores() if e.engine.workers == "auto" else e.engine.workers
        work = cost.train * rows * e.local.epochs + cost.test * cost.test_rows
        return cost.server + work / min(workers, e.federation.sampled)


def measure(e: Experiment) -> Cost:
    with one_thread():
        world = build(e)
        algorithm: Any = e.algorithm
        s = algorithm.init(world.f.weights())
        sent, server = _timed(lambda: algorithm.broadcast(s, world.f, Stream(0)))
        shard = max(world.shards, key=len)
        few = replace(shard, rows=shard.rows[:ROWS])
        learner = Learner(algorithm, world.f, replace(e.local, epochs=1, batch_size=ROWS))
        round = Round(1, e.rounds, e.federation.clients, world.examples)
        memory = algorithm.memory(sent.w)
        _, train = _timed(lambda: learner.train(few, sent, memory, round, Stream(0)))
        n = len(world.test.y)
        exam = TestSet(world.f, world.test, world.transform, min(ROWS, n))
        _, test = _timed(lambda: exam.batch(algorithm.deployed(s), 0))
    return Cost(train / len(few), test / exam.batch_size, server, world.examples, n)


def _timed(work: Any) -> tuple[Any, float]:
    """What it gives, and how long it takes when it is done for the second time."""
    work()
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
