"""Training a round's clients on several workers: what the process pool and Ray share.

Clients with the most rows start first, and whichever worker is free takes the next. Replies and
memories depend on neither, so results are bit-identical to training one by one.

Replies are passed on in the order of the clients, so one that is early waits for those before it.
So that the memory of a round does not grow with the number of its clients, a client starts only
while fewer than `window` clients before it wait to be passed on.
"""

import itertools
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import kind_of, pack, size, unpack
from fedadb.core.replies import Replies, Reply
from fedadb.core.vector import Layout

MAX_LOSSES = 3  # of workers, while they train the same client in one round
WAITING_BYTES = 128 << 20  # of replies that wait for those before them
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
        """Wait until a worker is done; return the clients that are done, with their results.

        The tensors may be views that the next `assign` changes.
        """
        ...


class ResultKind(NamedTuple):
    """The types of a client's reply and memory, and how many clients may train ahead of others."""

    reply: Any
    memory: Any
    layout: Layout
    window: int

    @staticmethod
    def of(reply: Reply[Any], memory: Any, layout: Layout, workers: int) -> "ResultKind":
        """The kind of results like these examples, whose Vectors have that layout."""
        window = max(2 * workers, WAITING_BYTES // size(reply))
        return ResultKind(kind_of(reply), kind_of(memory), layout, window)


def train_on_workers(
    workers: Workers,
    clients: Sequence[int],
    round: Round,
    shards: Sequence[Shard],
    memories: MutableMapping[int, Any],
    kind: ResultKind,
) -> Replies[Reply[Any]]:
    """Train the clients and update their memories, while the replies are read."""
    rows = {k: len(shards[k]) for k in clients}
    stream = _train_in_order(workers, clients, round, rows, memories, kind)
    return Replies(stream, list(rows.values()))


def _train_in_order(
    workers: Workers,
    clients: Sequence[int],
    round: Round,
    rows: Mapping[int, int],
    memories: MutableMapping[int, Any],
    kind: ResultKind,
) -> Iterator[Reply[Any]]:
    may_start: list[tuple[int, int]] = []  # a heap: the client with the most rows is its first
    replies: dict[int, Reply[Any]] = {}  # those that wait for earlier ones
    losses: Counter[int] = Counter()
    later = iter(clients)
    for k in itertools.islice(later, kind.window - 1):
        heappush(may_start, (-rows[k], k))
    for next_client in clients:
        for k in itertools.islice(later, 1):
            heappush(may_start, (-rows[k], k))
        while True:
            while may_start and workers.has_free():
                _, k = heappop(may_start)
                memory = memories.get(k)
                workers.assign(k, None if memory is None else pack(memory), round)
            if next_client in replies:
                break
            for k, result in workers.results():
                if isinstance(result, WorkerLost):
                    losses[k] += result.blamed
                    if losses[k] == MAX_LOSSES:
                        raise Fault(
                            f"client {k} in round {round.t}: {MAX_LOSSES} workers ended while they "
                            f"trained it: {result.reason}; often there is too little memory, and "
                            "fewer engine.workers need less; the same command resumes after the "
                            "last round"
                        )
                    heappush(may_start, (-rows[k], k))
                elif isinstance(result, RemoteError):
                    raise result.exception()
                else:
                    replies[k], memories[k] = unpack_result(result, kind)
        yield replies.pop(next_client)


def pack_result(reply: Reply[Any], memory: Any) -> dict[str, Tensor]:
    return pack(reply, "reply") | pack(memory, "memory")


def unpack_result(tensors: Mapping[str, Tensor], kind: ResultKind) -> tuple[Reply[Any], Any]:
    """The reply and the client's memory."""
    parts: dict[str, dict[str, Tensor]] = {"reply": {}, "memory": {}}
    for path, tensor in tensors.items():
        part, _, name = path.partition("/")
        parts[part][name] = tensor
    reply: Reply[Any] = unpack(kind.reply, parts["reply"], kind.layout)
    return reply, unpack(kind.memory, parts["memory"], kind.layout)
