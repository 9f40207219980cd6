"""The clients of a round in several processes; the same bits as one by one.

Workers are forked once, when what is sent is known for the first time: data, model and shards are
theirs from birth, and what goes to and fro lies in memory that all see. Only numbers and the
places of tensors pass through the pipes. A round's longest clients start first. Whenever a worker
has no client to train it evaluates a batch of the last round's model.
"""

import multiprocessing
import os
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from fedadb.core.algorithm import Reply, Round
from fedadb.core.data import Shard
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.answers import as_error, unpack_answer
from fedadb.engine.evaluate import Exam, Scores
from fedadb.engine.local import Learner
from fedadb.engine.shared import Shared, room_for
from fedadb.engine.worker import Board, Message, Worker, receive, send

SLACK = 1 << 16  # bytes for what clients measure


class Hand(NamedTuple):
    """A worker, as its parent knows it."""

    process: BaseProcess
    connection: Connection
    inbox: Shared
    outbox: Shared


@dataclass
class Pool:
    """A cohort of worker processes, which evaluates as well."""

    learner: Learner[Any, Any, Any]
    shards: Sequence[Shard]
    rng: Stream
    workers: int
    exam: Exam
    memories: MutableMapping[int, Any] = field(default_factory=dict)
    overlaps: bool = True
    _hands: list[Hand] = field(default_factory=list)
    _broadcast: Shared = field(default_factory=lambda: Shared(0))
    _board: Board | None = None
    _memory_kind: type[Any] = tuple

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply]:
        packed = pack(sent)
        if not self._hands or room_for(packed) > self._broadcast.size:
            self._start(sent)
        header = self._broadcast.write(packed)
        for hand in self._hands:
            self._send(hand, {"sent": header})
        replies: dict[int, Reply] = {}
        waiting = sorted(clients, key=lambda k: len(self.shards[k]))  # the longest at the end
        busy: dict[int, int] = {}  # which client each worker has
        while waiting or busy:
            for i, hand in enumerate(self._hands):
                if i not in busy and waiting:
                    busy[i] = waiting.pop()
                    self._assign(hand, busy[i], round)
            for i, message in self._messages(round, busy):
                k = busy.pop(i)
                replies[k] = self._reply(self._hands[i], k, message)
        return [replies[k] for k in clients]

    def begin(self, w: Vector) -> None:
        """Let the workers evaluate w when they find the time."""
        assert self._board is not None, "evaluation comes after the first round"
        self._board.post(w)
        for hand in self._hands:
            self._send(hand, {"evaluate": True})  # wakes those who wait

    def scores(self) -> Scores:
        """Wait until all batches are done."""
        assert self._board is not None, "nothing was begun"
        while not self._board.finished():
            self._messages(None, {})
        return self.exam.scores(self._board.results())

    def close(self) -> None:
        for hand in self._hands:
            with suppress(OSError):
                send(hand.connection, {"end": True})
            hand.connection.close()
        for hand in self._hands:
            hand.process.join(timeout=1)
            if hand.process.is_alive():
                hand.process.kill()
                hand.process.join()
        self._hands = []

    def _start(self, sent: Any) -> None:
        """Fork the workers, with room for messages like these."""
        while self._board is not None and not self._board.finished():
            self._messages(None, {})  # what is being evaluated is not to be lost
        self.close()
        context = multiprocessing.get_context("fork")
        memory = self.learner.algorithm.memory(sent.w)
        self._memory_kind = type(memory)
        kept, reply = room_for(pack(memory)), room_for(pack(sent.w))
        self._broadcast = Shared(room_for(pack(sent)))
        self._board = self._board or Board(self.exam, sent.w, context.Lock())
        for _ in range(self.workers):
            ours, theirs = context.Pipe()
            inbox, outbox = Shared(kept), Shared(kept + reply + SLACK)
            worker = Worker(
                self.learner,
                self.shards,
                self.rng,
                type(sent),
                type(memory),
                self._broadcast,
                inbox,
                outbox,
                self._board,
            )
            mine = [hand.connection for hand in self._hands] + [ours]
            process = context.Process(
                target=_live, args=(worker, theirs, mine, os.getpid()), daemon=True
            )
            process.start()
            theirs.close()
            self._hands.append(Hand(process, ours, inbox, outbox))

    def _assign(self, hand: Hand, k: int, round: Round) -> None:
        memory = self.memories.get(k)
        header = None if memory is None else hand.inbox.write(pack(memory))
        self._send(hand, {"client": k, "memory": header, "round": round})

    def _send(self, hand: Hand, message: Message) -> None:
        try:
            send(hand.connection, message)
        except OSError as error:
            raise self._lost(hand) from error

    def _messages(self, round: Round | None, busy: dict[int, int]) -> list[tuple[int, Message]]:
        """What workers say next, of the clients they trained."""
        ready = wait([hand.connection for hand in self._hands])
        found = []
        for i, hand in enumerate(self._hands):
            if hand.connection in ready:
                try:
                    message = receive(hand.connection)
                except (EOFError, OSError) as error:
                    raise self._lost(hand, busy.get(i), round) from error
                if "client" in message:
                    found.append((i, message))
        return found

    def _lost(self, hand: Hand, k: int | None = None, round: Round | None = None) -> Fault:
        hand.process.join(timeout=1)
        at = f" while it trained client {k} in round {round.t}" if round and k is not None else ""
        return Fault(
            f"a worker process ended{at} with exit code {hand.process.exitcode} (-9: often too "
            "little memory); the same command goes on from the last round, and fewer "
            "engine.workers need less memory"
        )

    def _reply(self, hand: Hand, k: int, message: Message) -> Reply:
        if "error" in message:
            raise as_error(message["error"], message["text"])
        tensors = {name: t.clone() for name, t in hand.outbox.read(message["header"]).items()}
        reply, self.memories[k] = unpack_answer(tensors, self._memory_kind, self.learner.f.layout)
        return reply


def _live(worker: Worker, connection: Connection, others: list[Connection], parent: int) -> None:
    for other in others:  # the parent's ends: they would keep a pipe open that it has closed
        other.close()
    worker.live(connection, parent)
