"""Where the clients of a round train."""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from fedadb.core.algorithm import B, C, Reply, Round, S
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.stream import Stream
from fedadb.engine.local import Learner

Sent = TypeVar("Sent", contravariant=True)


class Lost(NamedTuple):
    """A client without a reply that could be used, where that does not end the federation."""

    who: str
    reason: str


class Cohort(Protocol[Sent]):
    """Whatever can make clients train on what was sent, and bring back their replies in order."""

    def __call__(
        self, sent: Sent, clients: Sequence[int], round: Round
    ) -> Sequence[Reply | Lost]: ...


@dataclass(frozen=True)
class OneByOne(Generic[S, B, C]):
    """In this process, one client after the other. The reference for every other cohort."""

    learner: Learner[S, B, C]
    shards: Sequence[Shard]
    rng: Stream
    memories: MutableMapping[int, C] = field(default_factory=dict)  # of those that took part

    def __call__(self, sent: B, clients: Sequence[int], round: Round) -> list[Reply]:
        return [self._train(sent, k, round) for k in clients]

    def _train(self, sent: B, k: int, round: Round) -> Reply:
        known = self.memories.get(k)
        reply, memory = train_client(self.learner, self.shards[k], sent, k, known, round, self.rng)
        self.memories[k] = memory
        return reply


def train_client(
    learner: Learner[S, B, C],
    shard: Shard,
    sent: B,
    k: int,
    memory: C | None,
    round: Round,
    rng: Stream,
) -> tuple[Reply, C]:
    """Client k's round, from what it remembers if it has taken part before."""
    if memory is None:
        memory = learner.algorithm.memory(sent.w)
    try:
        return learner.train(shard, sent, memory, round, rng.at("client", round.t, k))
    except (BadInput, Fault) as error:
        raise type(error)(f"client {k} in round {round.t}: {error}") from error
    except Exception as error:
        error.add_note(f"This was client {k} in round {round.t}.")
        raise
