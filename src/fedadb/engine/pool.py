"""Trains the clients of a round in several processes; bit-identical to one by one.

Workers are forked once, when the first broadcast is known: they inherit data, model and shards.
Broadcasts, memories and replies lie in shared memory; the pipes carry only client numbers and the
positions of tensors. A worker without a client evaluates batches of the previous round's model.

This is our own and not `concurrent.futures` or torch's, because those copy or pickle what crosses
between processes, and cannot evaluate in the background.
"""

import multiprocessing
import os
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from torch import Tensor

from fedadb.core.algorithm import Reply, Round
from fedadb.core.data import Shard
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.evaluate import Scores, TestSet
from fedadb.engine.local import Learner
from fedadb.engine.scheduling import RemoteError, train_on_workers
from fedadb.engine.shared_memory import SharedMemory, bytes_needed
from fedadb.engine.worker import Message, SharedEvaluation, Worker, receive, send

MEASUREMENT_BYTES = 1 << 16  # room in a reply for what clients measure


@dataclass
class WorkerHandle:
    """The parent's view of a worker."""

    process: BaseProcess
    connection: Connection
    inbox: SharedMemory
    outbox: SharedMemory
    client: int | None = None  # that it is training


@dataclass
class Pool:
    """A cohort and evaluator of worker processes. Close it to end them."""

    learner: Learner[Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    workers: int
    test_set: TestSet
    memories: MutableMapping[int, Any] = field(default_factory=dict)
    in_background: bool = True
    _handles: list[WorkerHandle] = field(default_factory=list)
    _broadcast: SharedMemory = field(default_factory=lambda: SharedMemory(0))
    _evaluation: SharedEvaluation | None = None
    _memory_kind: type[Any] = tuple
    _round: int = 0

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply]:
        packed = pack(sent)
        if not self._handles or bytes_needed(packed) > self._broadcast.size:
            self._start(sent)
        self._round = round.t
        header = self._broadcast.write(packed)
        for handle in self._handles:
            self._send(handle, {"sent": header})
        layout = self.learner.f.layout
        return train_on_workers(
            self, clients, round, self.shards, self.memories, self._memory_kind, layout
        )

    # the evaluator

    def start(self, w: Vector) -> None:
        """Let the workers evaluate w whenever they have no client to train."""
        assert self._evaluation is not None, "evaluation comes after the first round"
        self._evaluation.start(w)
        for handle in self._handles:
            self._send(handle, {"evaluate": True})  # wakes workers that wait for a message

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

    def results(self) -> list[tuple[int, dict[str, Tensor] | RemoteError]]:
        found: list[tuple[int, dict[str, Tensor] | RemoteError]] = []
        for handle, message in self._messages():
            handle.client = None
            if "error" in message:
                found.append((message["client"], RemoteError(*message["error"])))
            else:
                views = handle.outbox.read(message["header"])
                found.append((message["client"], {name: t.clone() for name, t in views.items()}))
        return found

    def _start(self, sent: Any) -> None:
        """Fork the workers, with shared memory for broadcasts of this size."""
        if self._evaluation is not None:
            self._finish_evaluation()
        self.close()
        context = multiprocessing.get_context("fork")
        memory = self.learner.algorithm.memory(sent.w)
        self._memory_kind = type(memory)
        memory_bytes, reply_bytes = bytes_needed(pack(memory)), bytes_needed(pack(sent.w))
        self._broadcast = SharedMemory(bytes_needed(pack(sent)))
        if self._evaluation is None:
            self._evaluation = SharedEvaluation(self.test_set, sent.w, context.Lock())
        for _ in range(self.workers):
            parent_end, worker_end = context.Pipe()
            inbox = SharedMemory(memory_bytes)
            outbox = SharedMemory(memory_bytes + reply_bytes + MEASUREMENT_BYTES)
            worker = Worker(
                self.learner,
                self.shards,
                self.rng,
                type(sent),
                type(memory),
                self._broadcast,
                inbox,
                outbox,
                self._evaluation,
            )
            parent_ends = [handle.connection for handle in self._handles] + [parent_end]
            process = context.Process(
                target=_serve, args=(worker, worker_end, parent_ends, os.getpid()), daemon=True
            )
            process.start()
            worker_end.close()
            self._handles.append(WorkerHandle(process, parent_end, inbox, outbox))

    def _finish_evaluation(self) -> None:
        while self._evaluation is not None and not self._evaluation.finished():
            self._messages()

    def _send(self, handle: WorkerHandle, message: Message) -> None:
        try:
            send(handle.connection, message)
        except OSError as error:
            raise self._ended(handle) from error

    def _messages(self) -> list[tuple[WorkerHandle, Message]]:
        """Wait for workers; their messages about clients."""
        ready = wait([handle.connection for handle in self._handles])
        found = []
        for handle in self._handles:
            if handle.connection in ready:
                try:
                    message = receive(handle.connection)
                except (EOFError, OSError) as error:
                    raise self._ended(handle) from error
                if "client" in message:
                    found.append((handle, message))
        return found

    def _ended(self, handle: WorkerHandle) -> Fault:
        handle.process.join(timeout=1)
        task = ""
        if handle.client is not None:
            task = f" while it trained client {handle.client} in round {self._round}"
        return Fault(
            f"a worker process ended{task} with exit code {handle.process.exitcode} (-9 often "
            "means too little memory); the same command resumes after the last round, and fewer "
            "engine.workers need less memory"
        )


def _serve(
    worker: Worker, connection: Connection, parent_ends: list[Connection], parent: int
) -> None:
    for other in parent_ends:  # inherited copies would keep pipes open that the parent has closed
        other.close()
    worker.serve(connection, parent)
