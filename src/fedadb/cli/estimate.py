"""How long runs take on this machine, estimated from the measured cost of a few steps.

Costs are kept in a file in the user's cache directory, so each is measured once per machine.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from fedadb import datasets
from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.stream import Stream
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import Learner
from fedadb.engine.process import cores, one_thread
from fedadb.experiment.build import build_model, partition, pick_device, takes_own_kernels
from fedadb.experiment.config import Experiment
from fedadb.experiment.environment import processor
from fedadb.experiment.identity import own_code
from fedadb.experiment.simulation import limit_workers
from fedadb.experiment.toml_tables import flatten
from fedadb.kernels.selection import TORCH, expected_kernels
from fedadb.progress import Progress, no_progress
from fedadb.storage.cache import cache_directory, make_directory
from fedadb.storage.files import write_atomically

ROWS = 64  # in a measured step; the time of a step is proportional to its rows

T = TypeVar("T")


class StepCost(NamedTuple):
    """Seconds that parts of a round take in one thread."""

    train_row: float  # one row in one epoch of training
    test_row: float  # one row in an evaluation
    broadcast: float  # computing a broadcast


class DataSize(NamedTuple):
    """What a cost and an estimate depend on; known without loading a published dataset."""

    classes: int
    shape: tuple[int, ...]
    train_rows: int
    test_rows: int


class MeasuredCosts:
    """The costs that were measured on this machine, kept in a file."""

    def __init__(self) -> None:
        self.path = costs_file()
        self.costs = read_costs(self.path)

    def known(self, e: Experiment) -> bool:
        """Whether the cost of the experiment's steps was measured."""
        return cost_key(e) in self.costs

    def measure(self, e: Experiment, progress: Progress = no_progress) -> None:
        """Measure the cost of the experiment's steps, and keep it. Its data must be present."""
        self.costs[cost_key(e)] = measure_cost(e, progress)
        make_directory(self.path.parent)
        costs = {key: cost._asdict() for key, cost in self.costs.items()}
        write_atomically(self.path, json.dumps(costs, indent=1).encode())

    def round_seconds(self, e: Experiment) -> float:
        """An estimate of the time of one round; the cost must be known."""
        cost, size = self.costs[cost_key(e)], data_size(e.dataset)
        rows = e.federation.sampled * size.train_rows / e.federation.clients
        parallel = cost.train_row * rows * e.local.epochs + cost.test_row * size.test_rows
        return cost.broadcast + parallel / limit_workers(e, cores())


def costs_file() -> Path:
    return cache_directory() / "costs.json"


def read_costs(path: Path) -> dict[str, StepCost]:
    """The kept costs; none if there is no such file, or a damaged one."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {key: StepCost(**cost) for key, cost in json.loads(path.read_text()).items()}
    return {}


def cost_key(e: Experiment) -> str:
    """Everything that a cost depends on, as text."""
    table, size = e.table(), data_size(e.dataset)
    device = pick_device(e.engine.device)
    settings = {
        "model": table["model"],
        "algorithm": table["algorithm"],
        "optimizer": table["local"]["optimizer"],
        "own_code": own_code(e),
        "shape": size.shape,
        "classes": size.classes,
        "precision": e.engine.precision,
        "kernels": expected_kernels() if takes_own_kernels(e.engine, device) else TORCH,
        "device": device,
        "rows": ROWS,
        "processor": processor(),
        "torch": torch.__version__,
    }
    return ", ".join(f"{key} = {value}" for key, value in flatten(settings).items())


@cache
def data_size(dataset: str) -> DataSize:
    """The size of a dataset; the user's own data are loaded for it."""
    if source := datasets.DATASETS.get(dataset):
        return DataSize(source.classes, source.shape, *source.rows)
    splits = datasets.load(dataset)
    rows = len(splits.train.y), len(splits.test.y)
    return DataSize(len(splits.classes), splits.spec.shape, *rows)


def measure_cost(e: Experiment, progress: Progress = no_progress) -> StepCost:
    """Time a broadcast, a training step and an evaluation step on the experiment's data."""
    device = pick_device(e.engine.device)
    splits = datasets.load(e.dataset)
    # A real client, because an algorithm may treat a client that lacks classes differently.
    rows = torch.from_numpy(max(partition(e, splits), key=len)[:ROWS])
    train, test = splits.train.rows(rows).to(device), splits.test.rows(slice(ROWS)).to(device)
    shard = Shard(train, torch.arange(len(rows)).to(device), len(splits.classes), splits.transform)
    algorithm: Any = e.algorithm
    with one_thread():
        f = build_model(e, splits.spec, progress)
        s = algorithm.init(f.weights())
        sent, broadcast = timed(lambda: algorithm.broadcast(s, f, Stream(0)))
        learner = Learner(algorithm, f, replace(e.local, epochs=1, batch_size=ROWS))
        round = Round(1, e.rounds, e.federation.clients, len(splits.train.y))
        _, training = timed(lambda: learner.train(shard, sent, None, round, Stream(0)))
        test_set = TestSet(f, test, splits.transform, ROWS)
        _, testing = timed(lambda: test_set.evaluate_batch(algorithm.deployed(s), 0))
    return StepCost(training / len(rows), testing / len(test.y), broadcast)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of the work, and the seconds it takes once the code is warm."""
    for _ in range(2):
        began = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began
        if seconds > 1:  # warming up takes a small part of it
            break
    return result, seconds
