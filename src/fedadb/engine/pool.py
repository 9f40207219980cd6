"""Trains the clients of a round in several processes; bit-identical to one by one.

Workers are forked when the first broadcast is known: they inherit data, model and shards.
Broadcasts, memories and replies lie in shared memory; the pipes carry only client numbers and the
positions of tensors. A worker without a client evaluates batches of the previous round's model.

If a worker dies, hangs or runs out of memory, all workers are replaced, and the clients that they
were training are trained again, with the same results. Replacing all is simpler than replacing one
and rare enough: a dead worker may have held a lock that the others need.

The pool is our own, because those of `concurrent.futures` and torch copy or pickle what processes
exchange, and cannot evaluate in the background.
"""

import multiprocessing
import os
import signal
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.errors import Fault
from fedadb.core.packing import kind_of, pack
from fedadb.core.replies import Replies, Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.evaluate import Scores, TestSet
from fedadb.engine.local import Learner
from fedadb.engine.scheduling import (
    MAX_LOSSES,
    RemoteError,
    ResultKind,
    WorkerLost,
    pack_result,
    train_on_workers,
)
from fedadb.engine.shared_memory import Header, SharedMemory, bytes_needed, copy_to_shared_memory
from fedadb.engine.worker import (
    OUT_OF_MEMORY,
    Message,
    SharedEvaluation,
    Worker,
    receive,
    send,
)

MEASUREMENT_BYTES = 1 << 16  # room in a reply for the client's measurements
POLL_SECONDS = 1.0  # between two checks of the workers' heartbeats
SILENT_POLLS = 120  # a worker without a heartbeat for more polls counts as hung


@dataclass
class WorkerHandle:
    """The parent's view of a worker."""

    process: BaseProcess
    connection: Connection
    inbox: SharedMemory
    outbox: SharedMemory
    heartbeat: Tensor
    client: int | None = None  # the client that it is training
    last_beat: int = 0
    silent_polls: int = 0

    def is_silent(self) -> bool:
        """Whether the worker has been without a heartbeat for too many polls, this one included.

        Polls are counted and not seconds, so that a pause of the whole program (Ctrl-Z, a sleeping
        laptop) does not count.
        """
        beat = int(self.heartbeat)
        self.silent_polls = self.silent_polls + 1 if beat == self.last_beat else 0
        self.last_beat = beat
        return self.silent_polls > SILENT_POLLS


class WorkerEnded(Exception):
    """A worker has died or hangs."""

    def __init__(self, handle: WorkerHandle, reason: str) -> None:
        super().__init__(reason)
        self.handle = handle


@dataclass
class Pool:
    """A cohort and evaluator of worker processes. Close it to end them.

    ```python
    from contextlib import closing

    test_set = fedadb.TestSet(f, shard.examples, fedadb.AsIs(), batch_size=100)
    with closing(fedadb.Pool(learner, shards, rng, workers=2, test_set=test_set)) as cohort:
        replies = list(cohort(sent, clients=[0, 3], round=round))
    ```
    """

    learner: Learner[Any, Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    workers: int
    test_set: TestSet
    memories: MutableMapping[int, Any] = field(default_factory=dict)
    in_background: bool = True
    _handles: list[WorkerHandle] = field(default_factory=list)
    _broadcast: SharedMemory = field(default_factory=lambda: SharedMemory(0))
    _header: Header = field(default_factory=list)  # of the round's broadcast
    _evaluation: SharedEvaluation | None = None
    _sent: Any = None
    _kind: ResultKind | None = None
    _result_bytes: int = 0  # of a client's reply and memory
    _memory_bytes: int = 0
    _idle_losses: int = 0  # of workers without a client, since the last result

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> Replies[Reply[Any]]:
        packed = pack(sent)
        self._sent = sent
        if self._kind is None:
            reply = self.learner.example_reply(sent, round)
            memory = self.learner.first_memory(sent.w)
            self._kind = ResultKind.of(reply, memory, sent.w.layout, self.workers)
            self._memory_bytes = bytes_needed(pack(memory))
            self._result_bytes = bytes_needed(pack_result(reply, memory)) + MEASUREMENT_BYTES
        if bytes_needed(packed) > self._broadcast.size:
            if self._evaluation is not None:
                self._finish_evaluation()
            self._broadcast = SharedMemory(bytes_needed(packed))
            self.close()
        self._header = self._broadcast.write(packed)
        if not self._handles:
            self._fork()
        else:
            self._send_all({"sent": self._header})
        return train_on_workers(self, clients, round, self.shards, self.memories, self._kind)

    # the evaluator

    def start(self, w: Vector) -> None:
        """Let the workers evaluate w whenever they have no client to train."""
        assert self._evaluation is not None, "evaluation comes after the first round"
        self._evaluation.start(w)
        self._send_all({"evaluate": True})  # wakes workers that wait for a message

    def scores(self) -> Scores:
        assert self._evaluation is not None, "`start` comes first"
        self._finish_evaluation()
        return self.test_set.scores(self._evaluation.results())

    def close(self) -> None:
        """End the workers."""
        for handle in self._handles:
            with suppress(OSError):
                send(handle.connection, {"end": True})
            handle.connection.close()
        for handle in self._handles:
            handle.process.join(timeout=1)
            if handle.process.is_alive():
                handle.process.kill()
                handle.process.join()
        self._handles = []

    # the workers, as the scheduler uses them

    def has_free(self) -> bool:
        return any(handle.client is None for handle in self._handles)

    def assign(self, k: int, memory: dict[str, Tensor] | None, round: Round) -> None:
        handle = next(handle for handle in self._handles if handle.client is None)
        handle.client = k
        header = None if memory is None else handle.inbox.write(memory)
        self._send(handle, {"client": k, "memory": header, "round": round})

    def results(self) -> Sequence[tuple[int, dict[str, Tensor] | RemoteError | WorkerLost]]:
        try:
            messages = self._messages()
        except WorkerEnded as ended:
            return self._replace_workers(ended)
        found: list[tuple[int, dict[str, Tensor] | RemoteError]] = []
        for handle, message in messages:
            handle.client = None
            self._idle_losses = 0
            if "error" in message:
                found.append((message["client"], RemoteError(*message["error"])))
            else:
                # Views of the worker's memory: the scheduler copies them before it gives the worker
                # another client.
                found.append((message["client"], handle.outbox.read(message["header"])))
        return found

    def _fork(self) -> None:
        """Fork the workers, and let them read the broadcast."""
        context = multiprocessing.get_context("fork")
        assert self._kind is not None, "the first broadcast determines it"
        if self._evaluation is None:
            self._evaluation = SharedEvaluation(self.test_set, self._sent.w, context.Lock())
        elif not self._evaluation.finished():
            self._evaluation.restart(context.Lock())
        else:
            self._evaluation.lock = context.Lock()
        for _ in range(self.workers):
            parent_end, worker_end = context.Pipe()
            inbox = SharedMemory(self._memory_bytes)
            outbox = SharedMemory(self._result_bytes)
            heartbeat = copy_to_shared_memory({"beats": torch.tensor(0)})["beats"]
            worker = Worker(
                self.learner,
                self.shards,
                self.rng,
                kind_of(self._sent),
                self._kind.memory,
                self._broadcast,
                inbox,
                outbox,
                heartbeat,
                self._evaluation,
            )
            parent_ends = [handle.connection for handle in self._handles] + [parent_end]
            process = context.Process(
                target=_serve, args=(worker, worker_end, parent_ends, os.getpid()), daemon=True
            )
            process.start()
            worker_end.close()
            self._handles.append(WorkerHandle(process, parent_end, inbox, outbox, heartbeat))
        self._send_all({"sent": self._header})

    def _replace_workers(self, ended: WorkerEnded) -> list[tuple[int, WorkerLost]]:
        """Fork new workers, and return the clients that the old ones were training."""
        if ended.handle.client is None:
            self._idle_losses += 1
            if self._idle_losses == MAX_LOSSES:
                raise Fault(
                    f"{MAX_LOSSES} worker processes ended before they trained a client: {ended}; "
                    "fewer engine.workers need less memory; the same command resumes after the "
                    "last round"
                ) from ended
        lost = [
            (handle.client, WorkerLost(str(ended), blamed=handle is ended.handle))
            for handle in self._handles
            if handle.client is not None
        ]
        for handle in self._handles:
            handle.process.kill()
        self.close()
        self._fork()
        return lost

    def _finish_evaluation(self) -> None:
        while self._evaluation is not None and not self._evaluation.finished():
            try:
                self._messages()
            except WorkerEnded as ended:
                self._replace_workers(ended)

    def _send_all(self, message: Message) -> None:
        for handle in self._handles:
            self._send(handle, message)

    def _send(self, handle: WorkerHandle, message: Message) -> None:
        with suppress(OSError):  # it has ended: the next `_messages` notices
            send(handle.connection, message)

    def _messages(self) -> list[tuple[WorkerHandle, Message]]:
        """Wait for the workers' messages about clients. Raises WorkerEnded if one has ended."""
        ready = wait([handle.connection for handle in self._handles], timeout=POLL_SECONDS)
        found = []
        for handle in self._handles:
            if handle.connection in ready:
                handle.silent_polls = 0
                try:
                    message = receive(handle.connection)
                except (EOFError, OSError) as error:
                    raise WorkerEnded(handle, _reason(handle.process)) from error
                if "client" in message:
                    found.append((handle, message))
            elif not ready and handle.is_silent():
                reason = f"a worker process did not react for {SILENT_POLLS * POLL_SECONDS:g} s"
                raise WorkerEnded(handle, reason)
        return found


def _reason(process: BaseProcess) -> str:
    process.join(timeout=1)
    if process.exitcode == OUT_OF_MEMORY:
        return "a worker process ran out of memory"
    if process.exitcode == -signal.SIGKILL:
        return "a worker process was killed, as the system does when memory is short"
    return f"a worker process ended with exit code {process.exitcode}"


def _serve(
    worker: Worker, connection: Connection, parent_ends: list[Connection], parent: int
) -> None:
    for other in parent_ends:  # inherited copies would keep pipes open that the parent has closed
        other.close()
    worker.serve(connection, parent)
