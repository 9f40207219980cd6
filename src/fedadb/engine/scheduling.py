"""Training a round's clients on several workers: what the process pool and Ray share.

Clients with the most rows start first, and whichever worker is free takes the next. Replies and
memories depend on neither, so results are bit-identical to training one by one.
"""

import traceback
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fedadb.core.algorithm import Reply, Round
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.vector import Layout

MAX_LOSSES = 3  # of workers, while they train the same client in one round
ERRORS: dict[str, type[Exception]] = {"BadInput": BadInput, "Fault": Fault}


class RemoteError(NamedTuple):
    """An exception that training a client raised, in a form that can be sent."""

    kind: str
    text: str  # of a bug, the whole traceback

    @staticmethod
    def of(error: Exception) -> "RemoteError":
        if isinstance(error, (BadInput, Fault)):
            return RemoteError(type(error).__name__, str(error))
        return RemoteError("Exception", "".join(traceback.format_exception(error)))

    def exception(self) -> Exception:
        return ERRORS.get(self.kind, RuntimeError)(self.text)


class WorkerLost(NamedTuple):
    """A worker that ended before it answered."""

    reason: str
    blamed: bool = True  # whether the client it trained may be the cause


class Workers(Protocol):
    """Workers that train one client at a time."""

    def has_free(self) -> bool:
        """Whether a worker can take a client."""
        ...

    def assign(self, k: int, memory: dict[str, Tensor] | None, round: Round) -> None:
        """Give client k and its packed memory to a free worker."""
        ...

    def results(self) -> Sequence[tuple[int, dict[str, Tensor] | RemoteError | WorkerLost]]:
        """Wait until a worker is done; return the clients that are done, with their results."""
        ...


def train_on_workers(
    workers: Workers,
    clients: Sequence[int],
    round: Round,
    shards: Sequence[Shard],
    memories: MutableMapping[int, Any],
    memory_kind: type[Any],
    layout: Layout,
) -> list[Reply]:
    """Train the clients, update their memories, and return the replies in the clients' order."""
    waiting = sorted(clients, key=lambda k: len(shards[k]))  # taken from the end
    replies: dict[int, Reply] = {}
    losses: Counter[int] = Counter()
    while len(replies) < len(clients):
        while waiting and workers.has_free():
            k = waiting.pop()
            memory = memories.get(k)
            workers.assign(k, None if memory is None else pack(memory), round)
        for k, result in workers.results():
            if isinstance(result, WorkerLost):
                losses[k] += result.blamed
                if losses[k] == MAX_LOSSES:
                    raise Fault(
                        f"client {k} in round {round.t}: {MAX_LOSSES} workers ended while they "
                        f"trained it: {result.reason}; often there is too little memory, and fewer "
                        "engine.workers need less; the same command resumes after the last round"
                    )
                waiting.append(k)
            elif isinstance(result, RemoteError):
                raise result.exception()
            else:
                replies[k], memories[k] = unpack_result(result, memory_kind, layout)
    return [replies[k] for k in clients]


def pack_result(reply: Reply, memory: Any) -> dict[str, Tensor]:
    return pack(reply, "reply") | pack(memory, "memory")


def unpack_result(
    tensors: Mapping[str, Tensor], memory_kind: type[Any], layout: Layout
) -> tuple[Reply, Any]:
    """The reply and the client's memory."""
    parts: dict[str, dict[str, Tensor]] = {"reply": {}, "memory": {}}
    for path, tensor in tensors.items():
        part, _, name = path.partition("/")
        parts[part][name] = tensor
    memory = unpack(memory_kind, parts["memory"], layout)
    return unpack(Reply, parts["reply"], layout), memory
