"""The clients of a round on a Ray cluster; the same bits as one by one.

Actors of one thread each are given data, model and method once, through Ray's object store, where
those of a machine share the data. What is sent is put there once a round. A round's longest
clients start first, and whichever actor is free takes the next. Broadcasts, memories and replies
travel as arrays by name; all else by Ray's own serialisation, which is for a cluster of one owner.
"""

from collections import Counter
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from torch import Tensor

from fedadb.cluster.actor import Arrays, Trainer, arrays, each, tensors, versions
from fedadb.cluster.connection import cpus, last_line
from fedadb.core.algorithm import Reply, Round
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import pack
from fedadb.core.stream import Stream
from fedadb.engine.answers import as_error, unpack_answer
from fedadb.engine.local import Learner

HIRE_SECONDS = 300  # for an actor to start, while nobody trains
LOSSES = 3  # of one client in one round, before it is given up


class Duty(NamedTuple):
    actor: Any
    client: int | None  # none: it is starting


@dataclass
class RayCohort:
    """A cohort of Ray actors, on whatever Ray this process is connected to."""

    learner: Learner[Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    workers: int
    memories: MutableMapping[int, Any] = field(default_factory=dict)
    _free: list[Any] = field(default_factory=list)
    _busy: dict[Any, Duty] = field(default_factory=dict)  # by what will come of it
    _given: tuple[Any, ...] = ()  # to every actor, most of it by reference
    _memory_kind: type[Any] = tuple

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply]:
        try:
            return self._round(sent, clients, round)
        except BaseException:
            self.close()  # so that no actor is left with a client that nobody waits for
            raise

    def close(self) -> None:
        for actor in [*self._free, *(duty.actor for duty in self._busy.values())]:
            _end(actor)
        self._free, self._busy = [], {}

    def _round(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply]:
        if not self._given:
            self._prepare(sent)
        while len(self._free) + len(self._busy) < self.workers:
            self._hire()
        packed = ray.put(arrays(pack(sent)))
        replies: dict[int, Reply] = {}
        losses: Counter[int | None] = Counter()
        waiting = sorted(clients, key=lambda k: len(self.shards[k]))  # the longest at the end
        while len(replies) < len(clients):
            while waiting and self._free:
                self._assign(self._free.pop(), packed, waiting.pop(), round)
            actor, k, answer = self._next()
            if isinstance(answer, RayError):
                losses[k] += 1
                if losses[k] == LOSSES:
                    raise _lost(k, round, answer) from answer
                if k is not None:
                    waiting.append(k)
                _end(actor)
                self._hire()
                continue
            self._free.append(actor)
            if k is None:
                _require_same(answer)
            else:
                replies[k] = self._reply(k, answer)
        return [replies[k] for k in clients]

    def _prepare(self, sent: Any) -> None:
        """Put into the object store what every actor needs."""
        self._memory_kind = type(self.learner.algorithm.memory(sent.w))
        # As arrays the data stay in the store, and tensors look at them there; tensors would be
        # copied into each actor.
        data = each(self.shards, Tensor.numpy)
        self._given = (
            ray.put(self.learner),
            ray.put(data),
            self.rng,
            type(sent),
            self._memory_kind,
        )

    def _hire(self) -> None:
        kind: Any = ray.remote(num_cpus=1, max_restarts=0)(Trainer)
        actor = kind.remote(*self._given)
        self._busy[actor.versions.remote()] = Duty(actor, None)

    def _assign(self, actor: Any, packed: Any, k: int, round: Round) -> None:
        memory = self.memories.get(k)
        known = None if memory is None else arrays(pack(memory))
        self._busy[actor.train.remote(packed, k, known, round)] = Duty(actor, k)

    def _next(self) -> tuple[Any, int | None, Any]:
        """Who is done next, with whom, and what came of it: an answer, or how it was lost."""
        training = any(duty.client is not None for duty in self._busy.values())
        done, _ = ray.wait(list(self._busy), timeout=None if training else HIRE_SECONDS)
        if not done:
            raise Fault(
                f"no Ray actor could start within {HIRE_SECONDS} seconds: others may use all "
                f"{cpus()} CPUs of the cluster; the same command goes on from the last round"
            )
        actor, k = self._busy.pop(done[0])
        try:
            return actor, k, ray.get(done[0])
        except RayError as error:
            return actor, k, error

    def _reply(self, k: int, answer: Arrays | tuple[str, str]) -> Reply:
        if isinstance(answer, tuple):
            raise as_error(*answer)
        reply, self.memories[k] = unpack_answer(
            tensors(answer), self._memory_kind, self.learner.f.layout
        )
        return reply


def _require_same(theirs: str) -> None:
    if theirs != versions():
        raise BadInput(
            f"a machine of the Ray cluster has {theirs}, and here is {versions()}: results would "
            "differ; install the same there"
        )


def _lost(k: int | None, round: Round, error: RayError) -> Fault:
    why = last_line(str(error))
    if k is None:
        return Fault(
            f"{LOSSES} Ray actors ended before round {round.t} gave them a client: {why}; fedadb, "
            "and the modules of an algorithm or a model of your own, must be installed on every "
            "machine of the cluster"
        )
    return Fault(
        f"client {k} in round {round.t}: {LOSSES} Ray actors were lost while they trained it: "
        f"{why}; often there is too little memory, and fewer engine.workers need less; the same "
        "command goes on from the last round"
    )


def _end(actor: Any) -> None:
    with suppress(Exception):  # it has ended, or so has Ray
        ray.kill(actor)
