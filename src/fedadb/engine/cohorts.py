"""Cohorts train the clients of a round. This module has their protocol and the simplest one."""

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fedadb.core.algorithm import B, C, Round, S
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.replies import MissingReply, Replies, Reply, U
from fedadb.core.stream import Stream
from fedadb.engine.local import ClientMemory, Learner

B_contra = TypeVar("B_contra", contravariant=True)


class Cohort(Protocol[B_contra]):
    """Trains clients on a broadcast; their replies come in the order of the clients."""

    def __call__(
        self, sent: B_contra, clients: Sequence[int], round: Round
    ) -> Replies[Reply[Any] | MissingReply]: ...


@dataclass(frozen=True)
class OneByOne(Generic[S, B, C, U]):
    """Trains clients one after the other in this process: the reference for every other cohort.

    Args:
        learner: Trains one client.
        shards: The data of client 0, 1, …
        rng: The federation's random stream.
        memories: The memory of each client that has taken part. A client whose reply a filter drops
            keeps its new memory here; a run returns it to the one before.

    ```python
    cohort = fedadb.OneByOne(learner, shards, fedadb.Stream(seed=0))
    for reply in cohort(sent, clients=[0, 3], round=round):
        reply.w, reply.examples
    ```
    """

    learner: Learner[S, B, C, U]
    shards: Sequence[Shard]
    rng: Stream
    memories: MutableMapping[int, ClientMemory[C, Any]] = field(default_factory=dict)

    def __call__(self, sent: B, clients: Sequence[int], round: Round) -> Replies[Reply[U]]:
        rows = [len(self.shards[k]) for k in clients]
        return Replies((self._train(sent, k, round) for k in clients), rows)

    def _train(self, sent: B, k: int, round: Round) -> Reply[U]:
        memory = self.memories.get(k)
        reply, self.memories[k] = train_client(
            self.learner, self.shards[k], sent, k, memory, round, self.rng
        )
        return reply


def train_client(
    learner: Learner[S, B, C, U],
    shard: Shard,
    sent: B,
    k: int,
    memory: ClientMemory[C, Any] | None,
    round: Round,
    rng: Stream,
) -> tuple[Reply[U], ClientMemory[C, Any]]:
    """Train client k for one round; `memory` is None if it has not taken part before."""
    with naming_client(k, round):
        return learner.train(shard, sent, memory, round, rng.at("client", round.t, k))


@contextmanager
def naming_client(k: int | str, round: Round) -> Iterator[None]:
    """Add the client (or the list of several) and the round to what the block raises."""
    try:
        yield
    except (BadInput, Fault) as error:
        raise type(error)(f"client {k} in round {round.t}: {error}") from error
    except Exception as error:
        error.add_note(f"This was client {k} in round {round.t}.")
        raise
