"""A process that trains clients and, whenever it has nothing better to do, evaluates."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from typing import Any

import torch

from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.packing import unpack
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.answers import in_words, pack_answer
from fedadb.engine.cohorts import train_client
from fedadb.engine.evaluate import Exam
from fedadb.engine.local import Learner
from fedadb.engine.process import follow_parent, keep_memory
from fedadb.engine.shared import Header, Shared, room_for

Message = dict[str, Any]


def send(connection: Connection, message: Message) -> None:
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> Message:
    message: Message = json.loads(connection.recv_bytes())
    return message


class Board:
    """An evaluation that workers share: they take its batches one by one, in no fixed order."""

    def __init__(self, exam: Exam, w: Vector, lock: Lock) -> None:
        self.exam = exam
        self.lock = lock
        n = len(exam)
        tables = {
            "w": torch.zeros_like(w.flat),
            "taken": torch.tensor(n),
            "done": torch.tensor(n),
            "loss": torch.zeros(n, dtype=torch.float64),
            "hits": torch.zeros(n, len(exam.counts), dtype=torch.long),
        }
        memory = Shared(room_for(tables))
        self.tables = memory.read(memory.write(tables))
        self.layout = w.layout

    def post(self, w: Vector) -> None:
        """Begin: from now on batches can be taken."""
        self.tables["w"].copy_(w.flat)
        with self.lock:
            self.tables["taken"].zero_()
            self.tables["done"].zero_()

    def open(self) -> bool:
        """Whether batches are left to take."""
        return int(self.tables["taken"]) < len(self.exam)

    def finished(self) -> bool:
        return int(self.tables["done"]) == len(self.exam)

    def do_one(self) -> bool:
        """Take a batch, if one is left, and evaluate it; whether it was the last to be done."""
        with self.lock:
            i = int(self.tables["taken"])
            if i >= len(self.exam):
                return False
            self.tables["taken"].add_(1)
        loss, hits = self.exam.batch(Vector(self.tables["w"], self.layout), i)
        self.tables["loss"][i] = loss
        self.tables["hits"][i] = torch.tensor(hits)
        with self.lock:
            self.tables["done"].add_(1)
            return self.finished()

    def results(self) -> list[tuple[float, list[int]]]:
        return list(zip(self.tables["loss"].tolist(), self.tables["hits"].tolist(), strict=True))


@dataclass(frozen=True)
class Worker:
    """What a worker knows from before it was forked."""

    learner: Learner[Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    sent_kind: type[Any]
    memory_kind: type[Any]
    broadcast: Shared
    inbox: Shared
    outbox: Shared
    board: Board

    def live(self, connection: Connection, parent: int) -> None:
        """Do as the parent says, until it says no more."""
        follow_parent(parent)
        torch.set_num_threads(1)
        keep_memory()
        sent: Any = None
        try:
            while True:
                while not connection.poll() and self.board.open():
                    if self.board.do_one():
                        send(connection, {"evaluated": True})
                message = receive(connection)
                if "sent" in message:
                    sent = self._unpack(self.sent_kind, self.broadcast, message["sent"])
                elif "client" in message:
                    send(connection, self._train(sent, message))
                elif "end" in message:
                    break
        except (EOFError, OSError):  # the parent is gone
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
            return {"client": k, "header": self.outbox.write(pack_answer(reply, memory))}
        except Exception as error:
            kind, text = in_words(error)
            return {"client": k, "error": kind, "text": text}

    def _unpack(self, kind: type[Any], memory: Shared, header: Header) -> Any:
        return unpack(kind, memory.read(header), self.learner.f.layout)
