"""The backend of a simulation: this process, worker processes, or a Ray cluster."""

import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.engine.cohorts import Cohort, OneByOne
from fedadb.engine.evaluate import Evaluator, ImmediateEvaluator, TestSet
from fedadb.engine.pool import Pool
from fedadb.engine.process import cores, keep_freed_memory
from fedadb.engine.stacked import Stacked
from fedadb.experiment.build import (
    DataSummary,
    FederatedData,
    build_data,
    build_model,
    make_learner,
    pick_device,
)
from fedadb.experiment.config import Experiment
from fedadb.progress import Progress


@contextmanager
def simulation(experiment: Experiment, progress: Progress) -> Iterator["Simulation"]:
    """Load the data and build the model; connect to Ray if the experiment asks for it."""
    device = pick_device(experiment.engine.device)
    if experiment.engine.backend == "ray" and device.type != "cpu":
        raise BadInput(
            f"engine.backend = 'ray': its actors train on CPUs, but engine.device = "
            f"{experiment.engine.device!r} means {device.type} here; set engine.device = 'cpu'"
        )
    workers = worker_count(experiment, device.type)
    data = build_data(experiment, progress)
    made = Simulation(experiment, data, build_model(experiment, data.spec, progress), workers)
    if experiment.engine.backend == "processes":
        yield made
        return
    from fedadb.cluster.connection import connected  # late: Ray is optional

    with connected(experiment.engine.address, limit_workers(experiment, cores())):
        yield made


@dataclass(frozen=True)
class Simulation:
    """A run whose data are all in this process."""

    experiment: Experiment
    federated: FederatedData
    f: Model
    workers: int

    @property
    def data(self) -> DataSummary:
        return self.federated.summary

    def client_name(self, k: int) -> str:
        return str(k)

    @cached_property
    def test_set(self) -> TestSet:
        return self.federated.test_set(self.f, self.experiment.local.batch_size)

    def use(self, t: int, clients: Sequence[int]) -> None:
        """The clients' memories are all that depends on it, and the run keeps them."""

    @cached_property
    def recorded_set(self) -> TestSet:
        return self.federated.recorded_set(self.f, self.experiment.local.batch_size)

    @contextmanager
    def open(self, memories: MutableMapping[int, Any]) -> Iterator[tuple[Cohort[Any], Evaluator]]:
        e, shards, rng = self.experiment, self.federated.shards, Stream(self.experiment.seed)
        learner = make_learner(e, self.f)
        keep_freed_memory()
        if e.engine.cohort == "stacked":
            yield Stacked(learner, shards, rng, memories), ImmediateEvaluator(self.recorded_set)
        elif e.engine.backend == "ray":
            from fedadb.cluster.cohort import RayCohort
            from fedadb.cluster.connection import cpus

            actors = limit_workers(e, cpus())
            with closing(RayCohort(learner, shards, rng, actors, memories)) as cohort:
                yield cohort, ImmediateEvaluator(self.recorded_set)
        elif self.workers == 1:
            yield OneByOne(learner, shards, rng, memories), ImmediateEvaluator(self.recorded_set)
        else:
            overlap = e.engine.overlap
            pool = Pool(learner, shards, rng, self.workers, self.recorded_set, memories, overlap)
            with closing(pool):
                yield pool, pool


def worker_count(experiment: Experiment, device: str) -> int:
    """The number of worker processes: at most one per client of a round.

    A GPU is used from one process. Workers are forked, which is safe with torch on Linux only.
    """
    asked, backend = experiment.engine.workers, experiment.engine.backend
    if device != "cpu" or backend == "ray":
        return 1
    if sys.platform != "linux" and asked not in ("auto", 1):
        raise BadInput(
            f"engine.workers = {asked}: worker processes are supported on Linux only; leave it "
            "out, or use engine.backend = 'ray'"
        )
    return limit_workers(experiment, cores()) if sys.platform == "linux" else 1


def limit_workers(experiment: Experiment, available: int) -> int:
    """The number that the experiment sets, or all available; at most one per client of a round."""
    asked = experiment.engine.workers
    return min(available if asked == "auto" else asked, experiment.federation.sampled)
