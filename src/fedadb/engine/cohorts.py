"""Cohorts train the clients of a round. This module has their protocol and the simplest one."""

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from fedadb.core.algorithm import B, C, Reply, Round, S
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.stream import Stream
from fedadb.engine.local import Learner

B_contra = TypeVar("B_contra", contravariant=True)


class MissingReply(NamedTuple):
    """A client whose reply is missing or invalid; the round continues without it."""

    client: str
    reason: str


class Cohort(Protocol[B_contra]):
    """Trains clients on a broadcast and returns their replies in the order of the clients."""

    def __call__(
        self, sent: B_contra, clients: Sequence[int], round: Round
    ) -> Sequence[Reply | MissingReply]: ...


@dataclass(frozen=True)
class OneByOne(Generic[S, B, C]):
    """Trains clients one after the other in this process: the reference for every other cohort.

    Args:
        learner: Trains one client.
        shards: The data of client 0, 1, …
        rng: The federation's random stream.
        memories: The memory of each client that has taken part.

    ```python
    cohort = fedadb.OneByOne(learner, shards, fedadb.Stream(seed=0))
    replies = cohort(sent, clients=[0, 3], round=round)
    ```
    """

    learner: Learner[S, B, C]
    shards: Sequence[Shard]
    rng: Stream
    memories: MutableMapping[int, C] = field(default_factory=dict)

    def __call__(self, sent: B, clients: Sequence[int], round: Round) -> list[Reply]:
        return [self._train(sent, k, round) for k in clients]

    def _train(self, sent: B, k: int, round: Round) -> Reply:
        memory = self.memories.get(k)
        reply, self.memories[k] = train_client(
            self.learner, self.shards[k], sent, k, memory, round, self.rng
        )
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
    """Train client k for one round; `memory` is None if it has not taken part before."""
    if memory is None:
        memory = learner.algorithm.memory(sent.w)
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
