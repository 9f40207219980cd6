"""A worker process: it trains clients, and evaluates batches while it has none to train."""

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from typing import Any

import torch
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.packing import unpack
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import train_client
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import Learner
from fedadb.engine.process import end_with_parent, keep_freed_memory
from fedadb.engine.scheduling import RemoteError, pack_result
from fedadb.engine.shared_memory import Header, SharedMemory, copy_to_shared_memory

Message = dict[str, Any]
BEAT_SECONDS = 1.0  # between two heartbeats of a worker
OUT_OF_MEMORY = 86  # the exit code of a worker that could not allocate memory


def send(connection: Connection, message: Message) -> None:
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> Message:
    message: Message = json.loads(connection.recv_bytes())
    return message


class SharedEvaluation:
    """An evaluation whose batches the workers share, each taking the next that is left."""

    def __init__(self, test_set: TestSet, w: Vector, lock: Lock) -> None:
        self.test_set = test_set
        self.lock = lock
        n = len(test_set)
        initial = {
            "w": torch.zeros_like(w.flat),
            "taken": torch.tensor(n),
            "done": torch.tensor(n),
            "loss": torch.zeros(n, dtype=torch.float64),
            "hits": torch.zeros(n, len(test_set.counts), dtype=torch.long),
        }
        self.shared = copy_to_shared_memory(initial)
        self.layout = w.layout

    def start(self, w: Vector) -> None:
        """Evaluate w: from now on workers can take batches."""
        self.shared["w"].copy_(w.flat)
        self.restart(self.lock)

    def restart(self, lock: Lock) -> None:
        """Evaluate all batches again, with workers that share this lock.

        The parent never takes the lock, because a worker may have been killed while it held it. It
        does not need the lock: no worker takes a batch before "taken" is zero.
        """
        self.lock = lock
        self.shared["done"].zero_()
        self.shared["taken"].zero_()

    def has_batches(self) -> bool:
        """Whether batches are left to take."""
        return int(self.shared["taken"]) < len(self.test_set)

    def finished(self) -> bool:
        return int(self.shared["done"]) == len(self.test_set)

    def evaluate_next(self) -> bool:
        """Take a batch, if one is left, and evaluate it; returns whether all are now done."""
        with self.lock:
            i = int(self.shared["taken"])
            if i >= len(self.test_set):
                return False
            self.shared["taken"].add_(1)
        loss, hits = self.test_set.evaluate_batch(Vector(self.shared["w"], self.layout), i)
        self.shared["loss"][i] = loss
        self.shared["hits"][i] = torch.tensor(hits)
        with self.lock:
            self.shared["done"].add_(1)
            return self.finished()

    def results(self) -> list[tuple[float, list[int]]]:
        return list(zip(self.shared["loss"].tolist(), self.shared["hits"].tolist(), strict=True))


@dataclass(frozen=True)
class Worker:
    """What a worker inherits from its parent when it is forked."""

    learner: Learner[Any, Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    sent_kind: Any
    memory_kind: Any
    broadcast: SharedMemory
    inbox: SharedMemory
    outbox: SharedMemory
    heartbeat: Tensor  # in shared memory; counts up while the process runs
    evaluation: SharedEvaluation

    def serve(self, connection: Connection, parent: int) -> None:
        """Carry out what the parent's messages ask for, until one says "end" or the parent ends."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent()
        if os.getppid() != parent:  # it ended before the line above took effect
            os._exit(1)
        threading.Thread(target=self._beat, daemon=True).start()
        torch.set_num_threads(1)
        keep_freed_memory()
        sent: Any = None
        try:
            while True:
                while not connection.poll() and self.evaluation.has_batches():
                    if self.evaluation.evaluate_next():
                        send(connection, {"evaluated": True})
                message = receive(connection)
                if "sent" in message:
                    sent = self._unpack(self.sent_kind, self.broadcast, message["sent"])
                elif "client" in message:
                    send(connection, self._train(sent, message))
                elif "end" in message:
                    break
        except (EOFError, OSError):  # the parent has ended
            pass
        os._exit(0)

    def _train(self, sent: Any, message: Message) -> Message:
        k, header = message["client"], message["memory"]
        memory = None if header is None else self._unpack(self.memory_kind, self.inbox, header)
        round = Round(*message["round"])
        try:
            reply, memory = train_client(
                self.learner, self.shards[k], sent, k, memory, round, self.rng
            )
            return {"client": k, "header": self.outbox.write(pack_result(reply, memory))}
        except Exception as error:
            if _is_out_of_memory(error):
                os._exit(OUT_OF_MEMORY)
            return {"client": k, "error": RemoteError.of(error)}

    def _beat(self) -> None:
        while True:
            self.heartbeat.add_(1)
            time.sleep(BEAT_SECONDS)

    def _unpack(self, kind: Any, memory: SharedMemory, header: Header) -> Any:
        return unpack(kind, memory.read(header), self.learner.f.layout)


def _is_out_of_memory(error: Exception) -> bool:
    # torch raises a plain RuntimeError if its CPU allocator fails.
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)
