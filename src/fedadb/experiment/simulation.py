"""The backend of a simulation: this process, worker processes, or a Ray cluster."""

import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.attack import attackers_of, poisoned
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.engine.attacked import Attacked
from fedadb.engine.cohorts import Cohort, OneByOne
from fedadb.engine.evaluate import Evaluator, ImmediateEvaluator, TestSet
from fedadb.engine.federate import Snapshot
from fedadb.engine.local import Learner
from fedadb.engine.personal import (
    PersonalLearner,
    PersonalStart,
    has_own_head,
    personal_accuracies,
)
from fedadb.engine.pool import Pool
from fedadb.engine.process import cores, keep_freed_memory
from fedadb.engine.stacked import Stacked
from fedadb.experiment.build import (
    DataSummary,
    FederatedData,
    SeededSource,
    build_data,
    build_model,
    make_learner,
    pick_device,
)
from fedadb.experiment.config import Experiment
from fedadb.experiment.secure_aggregation import counts_alike, require_cryptography
from fedadb.experiment.sizes import warn_of_few_steps
from fedadb.progress import Progress, no_progress


@contextmanager
def simulation(experiment: Experiment, progress: Progress) -> Iterator["Simulation"]:
    """Load the data and build the model; connect to Ray if the experiment asks for it."""
    device = pick_device(experiment.engine.device)
    if experiment.engine.backend == "ray" and device.type != "cpu":
        raise BadInput(
            f"engine.backend = 'ray': its actors train on CPUs, but engine.device = "
            f"{experiment.engine.device!r} means {device.type} here; set engine.device = 'cpu'"
        )
    experiment.check_federation()
    if experiment.deployment.secure_aggregation:
        require_cryptography()
    worker_count(experiment, device.type)  # raises if the experiment asks for too much
    data = build_data(experiment, progress)
    warn_of_few_steps(experiment.local, data.summary.counts)
    if attack := experiment.attack:
        data = replace(data, shards=poisoned(attack, data.shards, attackers(experiment)))
    f = build_model(experiment, data.spec, progress)
    if experiment.personal:
        has_own_head(experiment.algorithm, f)  # raises if the algorithm's hook is wrong
    made = Simulation(experiment, data, f, progress)
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
    progress: Progress = no_progress

    @property
    def data(self) -> DataSummary:
        return self.federated.summary

    @property
    def random(self) -> SeededSource:
        return SeededSource(Stream(self.experiment.seed), self.experiment.federation)

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
        learner, rng = make_learner(self.experiment, self.f), Stream(self.experiment.seed)
        keep_freed_memory()
        if self.experiment.engine.cohort == "stacked":
            stacked = Stacked(learner, self.federated.shards, rng, memories)
            yield self._wrapped(stacked), ImmediateEvaluator(self.recorded_set)
            return
        with self._cohort(learner, rng, memories) as cohort:
            immediate = ImmediateEvaluator(self.recorded_set)
            yield self._wrapped(cohort), cohort if isinstance(cohort, Pool) else immediate

    def _wrapped(self, cohort: Cohort[Any]) -> Cohort[Any]:
        """The cohort with what happens between its clients and the server."""
        e = self.experiment
        if e.attack is not None:
            return Attacked(cohort, e.attack, attackers(e), Stream(e.seed))
        if e.deployment.secure_aggregation:
            from fedadb.engine.securely_summed import SecurelySummed  # late: it needs an extra

            return SecurelySummed.of(
                cohort,
                e.federation.clients,
                e.deployment.secure_range,
                counts_alike(e),
                e.algorithm.measures,
            )
        return cohort

    @contextmanager
    def _cohort(
        self,
        learner: Learner[Any, Any, Any, Any],
        rng: Stream,
        memories: MutableMapping[int, Any],
        clients: int | None = None,
        reserved_cpus: int = 1,
    ) -> Iterator[Cohort[Any]]:
        e, shards = self.experiment, self.federated.shards
        if e.engine.backend == "ray":
            from fedadb.cluster.cohort import RayCohort
            from fedadb.cluster.connection import cpus

            actors = limit_workers(e, cpus(), clients)
            with closing(
                RayCohort(learner, shards, rng, actors, memories, reserved_cpus)
            ) as cohort:
                yield cohort
            return
        workers = worker_count(e, pick_device(e.engine.device).type, clients)
        if workers == 1:
            yield OneByOne(learner, shards, rng, memories)
        else:
            overlap = e.engine.overlap
            pool = Pool(learner, shards, rng, workers, self.recorded_set, memories, overlap)
            with closing(pool):
                yield pool

    def personal_accuracies(
        self, now: Snapshot[Any], memories: MutableMapping[int, Any]
    ) -> dict[str, list[float]]:
        e, f = self.experiment, self.f
        # Addresses of their own: no other random number depends on whether this is done.
        rng = Stream(e.seed).at("personal")
        w = e.algorithm.deployed(now.server)
        start: PersonalStart[Any]
        if has_own_head(e.algorithm, f):
            sent = e.algorithm.broadcast(now.server, f, rng.at("server", now.round.t))
            start, algorithm, filters = PersonalStart(w, sent), e.algorithm, e.filter
        else:  # how the algorithm trains does not matter, so no memory is read
            start, algorithm, filters, memories = PersonalStart(w, ()), FedAvg(), (), {}
        learner = PersonalLearner(algorithm, f, e.local, filters, test_set=self.test_set)
        clients = e.federation.clients  # all of them train, not only those of a round
        with self._cohort(learner, rng, memories, clients, reserved_cpus=0) as cohort:
            return personal_accuracies(
                cohort, start, now.round, self.test_set, self.federated.cell_counts, self.progress
            )


def attackers(experiment: Experiment) -> frozenset[int]:
    """The clients that attack."""
    if experiment.attack is None:
        return frozenset()
    return attackers_of(experiment.attack, experiment.federation.clients, Stream(experiment.seed))


def worker_count(experiment: Experiment, device: str, clients: int | None = None) -> int:
    """The number of worker processes, as `limit_workers` says.

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
    return limit_workers(experiment, cores(), clients) if sys.platform == "linux" else 1


def limit_workers(experiment: Experiment, available: int, clients: int | None = None) -> int:
    """The number that the experiment sets, or all available; at most one per client.

    The clients are so many, or those of a round.
    """
    asked = experiment.engine.workers
    most = experiment.federation.sampled if clients is None else clients
    return min(available if asked == "auto" else asked, most)
