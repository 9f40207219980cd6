"""How long an experiment will take, from a few steps of it."""

import time
from dataclasses import replace
from typing import Any

from fedadb import datasets
from fedadb.core.algorithm import Round
from fedadb.core.stream import Stream
from fedadb.engine.evaluate import Exam
from fedadb.engine.local import Learner
from fedadb.engine.process import cores
from fedadb.experiment.build import World, build
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import one_thread

ROWS = 64  # of the steps that are measured; a step's time goes with its rows


class Estimator:
    """Seconds a round. What algorithms of the same kind share is measured once."""

    def __init__(self) -> None:
        self._world: tuple[str, World] | None = None
        self._per_row: dict[str, tuple[float, float, float]] = {}

    def seconds(self, e: Experiment) -> float | None:
        """Of a round of this experiment, on this machine; None without its data."""
        if not datasets.present(e.dataset):
            return None
        key = repr((e.dataset, e.model, e.algorithm))
        if key not in self._per_row:
            self._per_row[key] = self._measure(e)
        train, test, server = self._per_row[key]
        world = self._built(e)
        rows = e.federation.sampled * world.examples / e.federation.clients
        workers = cores() if e.engine.workers == "auto" else e.engine.workers
        spread = min(workers, e.federation.sampled)
        return server + (train * rows * e.local.epochs + test * len(world.test.y)) / spread

    def _built(self, e: Experiment) -> World:
        """The world of the experiment; what differs only in method or seed can use the same."""
        key = repr((e.dataset, e.model, e.federation))
        if self._world is None or self._world[0] != key:
            self._world = key, build(e)
        return self._world[1]

    def _measure(self, e: Experiment) -> tuple[float, float, float]:
        """Seconds to train on a row, to test one, and for what the server sends."""
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
            exam = Exam(world.f, world.test, world.transform, min(ROWS, len(world.test.y)))
            _, test = _timed(lambda: exam.batch(algorithm.deployed(s), 0))
        return train / len(few), test / exam.batch_size, server


def _timed(work: Any) -> tuple[Any, float]:
    """What it gives, and how long it takes when it is done for the second time."""
    work()
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
