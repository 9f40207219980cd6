"""Who does the work of an experiment: this process, workers beside it, or a cluster."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, NamedTuple

from fedadb.core.data import Shard
from fedadb.core.stream import Stream
from fedadb.engine.cohorts import Cohort, OneByOne
from fedadb.engine.evaluate import AtOnce, Exam, Examiner
from fedadb.engine.local import Learner
from fedadb.engine.memories import Memories
from fedadb.engine.pool import Pool
from fedadb.engine.process import cores, keep_memory
from fedadb.engine.stacked import Stacked
from fedadb.experiment.config import Experiment


class Work(NamedTuple):
    """What there is to do in a run."""

    experiment: Experiment
    learner: Learner[Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    exam: Exam
    memories: Memories[Any]


# A cohort, and who evaluates what comes of it, for as long as the context lasts.
Crew = Callable[[Work], AbstractContextManager[tuple[Cohort[Any], Examiner]]]


@contextmanager
def ground(experiment: Experiment) -> Iterator[None]:
    """What the crew stands on, if that has to be reached or started first: Ray."""
    if experiment.engine.backend == "processes":
        yield
        return
    from fedadb.cluster.connection import connected  # late: not everybody has it

    with connected(experiment.engine.address, as_asked(experiment, cores())):
        yield


@contextmanager
def crew(work: Work) -> Iterator[tuple[Cohort[Any], Examiner]]:
    """Workers of this machine or of a cluster; their processes end with the context."""
    experiment, learner, shards, rng, exam, memories = work
    keep_memory()
    if experiment.engine.cohort == "stacked":
        yield Stacked(learner, shards, rng, memories), AtOnce(exam)
        return
    if experiment.engine.backend == "ray":
        from fedadb.cluster.cohort import RayCohort
        from fedadb.cluster.connection import cpus

        actors = as_asked(experiment, cpus())
        with closing(RayCohort(learner, shards, rng, actors, memories)) as cohort:
            yield cohort, AtOnce(exam)
        return
    workers = how_many(experiment, exam.test.y.device.type)
    if workers == 1:
        yield OneByOne(learner, shards, rng, memories), AtOnce(exam)
        return
    overlap = experiment.engine.overlap
    with closing(Pool(learner, shards, rng, workers, exam, memories, overlap)) as pool:
        yield pool, pool


def how_many(experiment: Experiment, device: str) -> int:
    """As many as asked for or as there are cores, but no more than clients in a round.

    A GPU is used from one process, and so is a system on which processes cannot be forked.
    """
    if device != "cpu" or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return as_asked(experiment, cores())


def as_asked(experiment: Experiment, available: int) -> int:
    asked = experiment.engine.workers
    return min(available if asked == "auto" else asked, experiment.federation.sampled)
