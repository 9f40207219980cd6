"""Trains the clients of a round on a Ray cluster; bit-identical to one by one.

Single-threaded actors receive data, model and algorithm once, through Ray's object store, where
the actors of a machine share the data. Each broadcast is put there once. Broadcasts, memories and
replies travel as named arrays; everything else by Ray's own serialisation, which uses pickle: the
cluster must belong to one owner.
"""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from torch import Tensor

from fedadb.cluster.actor import ClientTrainer, convert_shards, to_arrays, to_tensors, versions
from fedadb.cluster.connection import cpus, last_line
from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import kind_of, pack
from fedadb.core.replies import Replies, Reply
from fedadb.core.stream import Stream
from fedadb.engine.local import Learner
from fedadb.engine.scheduling import (
    MAX_LOSSES,
    RemoteError,
    ResultKind,
    WorkerLost,
    train_on_workers,
)

START_SECONDS = 300  # for an actor to start, while no other trains


class Task(NamedTuple):
    """What an actor is doing."""

    actor: Any
    client: int | None  # the client that it trains; None: it is starting


@dataclass
class RayCohort:
    """A cohort of Ray actors, on the Ray cluster that this process is connected to."""

    learner: Learner[Any, Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    workers: int
    memories: MutableMapping[int, Any] = field(default_factory=dict)
    reserved_cpus: int = 1  # per actor; 0: beside idle actors of another cohort
    _free: list[Any] = field(default_factory=list)
    _tasks: dict[Any, Task] = field(default_factory=dict)  # by the reference of their result
    _arguments: tuple[Any, ...] = ()  # of every actor, the large ones by reference
    _kind: ResultKind | None = None
    _sent: Any = None  # reference of the round's broadcast
    _failed_starts: int = 0

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> Replies[Reply[Any]]:
        try:
            if self._kind is None:
                self._kind = self._prepare(sent, round)
            self._failed_starts = 0
            while len(self._free) + len(self._tasks) < self.workers:
                self._start_actor()
            self._sent = ray.put(to_arrays(pack(sent)))
        except BaseException:
            self.close()
            raise
        replies = train_on_workers(self, clients, round, self.shards, self.memories, self._kind)
        return Replies(self._closing_on_error(replies), replies.rows)

    def _closing_on_error(self, replies: Iterable[Reply[Any]]) -> Iterator[Reply[Any]]:
        try:
            yield from replies
        except BaseException:
            self.close()  # otherwise an actor would continue to train a client in vain
            raise

    def close(self) -> None:
        """End the actors."""
        for actor in [*self._free, *(task.actor for task in self._tasks.values())]:
            _kill(actor)
        self._free, self._tasks = [], {}

    # the workers, as the scheduler uses them

    def has_free(self) -> bool:
        return bool(self._free)

    def assign(self, k: int, memory: dict[str, Tensor] | None, round: Round) -> None:
        actor = self._free.pop()
        arrays = None if memory is None else to_arrays(memory)
        self._tasks[actor.train.remote(self._sent, k, arrays, round)] = Task(actor, k)

    def results(self) -> list[tuple[int, dict[str, Tensor] | RemoteError | WorkerLost]]:
        training = any(task.client is not None for task in self._tasks.values())
        done, _ = ray.wait(list(self._tasks), timeout=None if training else START_SECONDS)
        if not done:
            raise Fault(
                f"no Ray actor could start within {START_SECONDS} seconds: others may use all "
                f"{cpus()} CPUs of the cluster; the same command resumes after the last round"
            )
        actor, k = self._tasks.pop(done[0])
        try:
            result = ray.get(done[0])
        except RayError as error:
            _kill(actor)
            self._start_actor()
            if k is not None:
                return [(k, WorkerLost(last_line(str(error))))]
            self._count_failed_start(error)
            return []
        self._free.append(actor)
        if k is None:
            _require_equal_versions(result, versions(self.learner.f))
            return []
        if isinstance(result, tuple):
            return [(k, RemoteError(*result))]
        return [(k, to_tensors(result))]

    def _prepare(self, sent: Any, round: Round) -> ResultKind:
        """Put what every actor needs into the object store."""
        reply, memory = self.learner.example_reply(sent, round), self.learner.first_memory(sent.w)
        kind = ResultKind.of(reply, memory, sent.w.layout, self.workers)
        # Actors map arrays from the store; tensors would be copied into each actor.
        data = convert_shards(self.shards, Tensor.numpy)
        self._arguments = (
            ray.put(self.learner),
            ray.put(data),
            self.rng,
            kind_of(sent),
            kind.memory,
        )
        return kind

    def _start_actor(self) -> None:
        kind: Any = ray.remote(num_cpus=self.reserved_cpus, max_restarts=0)(ClientTrainer)
        actor = kind.remote(*self._arguments)
        self._tasks[actor.versions.remote()] = Task(actor, None)

    def _count_failed_start(self, error: RayError) -> None:
        self._failed_starts += 1
        if self._failed_starts == MAX_LOSSES:
            raise Fault(
                f"{MAX_LOSSES} Ray actors ended before they could train: {last_line(str(error))}; "
                "fedadb, and the modules of your own algorithm or model, must be installed on "
                "every machine of the cluster"
            ) from error


def _require_equal_versions(theirs: str, ours: str) -> None:
    if theirs != ours:
        raise BadInput(
            f"a machine of the Ray cluster has {theirs}, and this one has {ours}: results would "
            "differ; install the same versions there or, if only the kernels differ, set "
            "engine.kernels = 'torch'"
        )


def _kill(actor: Any) -> None:
    with suppress(Exception):  # the actor, or Ray itself, may have ended
        ray.kill(actor)
