"""A grid in this process: real Flower messages and the real ClientApp, but no network."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedadb.deploy.client_app import app
from fedadb.deploy.refusals import Refusal, to_reason
from fedadb.deploy.server_app import train_with_sites
from fedadb.experiment.config import Experiment
from fedadb.storage.records import Record

CLIENTS = 4

Handler = Callable[[Message, Context], Message]


class Withheld(Exception):
    """A handler raises it to announce a reply, of which a part never arrives."""


@dataclass
class FakeNode:
    """A node of the grid.

    Its handler may raise TimeoutError, so that no reply arrives, ConnectionError, so that the
    SuperLink reports the node as offline, or Withheld.
    """

    config: dict[str, Any]
    name: str = ""
    handle: Handler = app
    connected: bool = True
    activated: int = 0  # how often its process has started again
    state: RecordDict = field(default_factory=RecordDict)

    def restart(self, handle: Handler = app) -> None:
        """Start its process again: the SuperLink does not deliver old messages a second time."""
        self.handle, self.connected, self.activated = handle, True, self.activated + 1


class FakeGrid(Grid):
    """Each node handles a message at the moment when it is sent.

    As with Flower's SuperLink, a pull claims the replies to all messages that it names, and then
    blocks until all parts of all of them are there. A message whose reply was claimed is deleted.
    """

    def __init__(self, experiment: str, nodes: list[FakeNode]) -> None:
        self.nodes = dict(enumerate(nodes, start=100))
        self.experiment = experiment
        self.pulled: list[list[str]] = []  # the messages of each pull that claimed something
        self._messages: dict[str, Message] = {}  # those that are not yet deleted
        self._replies: dict[str, Message] = {}
        self._withheld: set[str] = set()
        self._numbers = itertools.count()
        self._lock = Lock()
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.connected]

    def get_nodes(self) -> list[NodeInfo]:
        return [
            NodeInfo(node_id=n, name=node.name, last_activated_at=str(node.activated))
            for n, node in self.nodes.items()
            if node.connected
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        message_ids = []
        for message in messages:
            message_id = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = message_id
            message_ids.append(message_id)
            self._messages[message_id] = message
            node = self.nodes[message.metadata.dst_node_id]
            context = Context(1, 1, node.config, node.state, {"experiment": self.experiment})
            try:
                reply = node.handle(message, context)
            except TimeoutError:
                continue
            except Withheld:
                self._withheld.add(message_id)
                continue
            except ConnectionError:
                reply = Message(Error(5, "Node Unavailable"), reply_to=message)
            except Refusal as error:  # as our own node reports it
                reply = Message(Error(2, to_reason(error)), reply_to=message)
            except Exception as error:  # as Flower's node reports it
                reply = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
            self._replies[message_id] = reply
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        with self._lock:
            message_ids = list(message_ids)
            claimed = {i: reply for i in message_ids if (reply := self._claim(i)) is not None}
            blocked = self._withheld.intersection(message_ids)
            self._withheld -= blocked
            if claimed or blocked:
                self.pulled.append(message_ids)
        if blocked:
            Event().wait()  # for ever: Flower tries again for minutes or hours
        return list(claimed.values())

    def deliver(self, message: Message, reply: Message) -> None:
        """Let the reply to an earlier message arrive."""
        self._replies[message.metadata.message_id] = reply

    def _claim(self, message_id: str) -> Message | None:
        """The reply to the message, or the SuperLink's error about it."""
        if message_id in self._withheld:
            return None
        if (message := self._messages.get(message_id)) is None:
            lost = Message(RecordDict(), dst_node_id=1, message_type="query")
            lost.metadata.__dict__["_message_id"] = message_id
            return Message(Error(3, "Message Unavailable"), reply_to=lost)
        if not self.nodes[message.metadata.dst_node_id].connected:
            reply: Message | None = Message(Error(5, "Node Unavailable"), reply_to=message)
        else:
            reply = self._replies.pop(message_id, None)
        if reply is not None:
            del self._messages[message_id]
        return reply

    def send_and_receive(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def experiment(
    algorithm: Any = "fedavg",
    rounds: int = 3,
    participation: float = 0.5,
    filters: Sequence[dict[str, Any]] = (),
    **deployment: Any,
) -> Experiment:
    """Four sites, two of them in each round."""
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "filter": list(filters),
            "local": {"epochs": 1},
            "federation": {"clients": CLIENTS, "participation": participation},
            "deployment": deployment,
        }
    )


def nodes(handles: dict[int, Handler] | None = None) -> list[FakeNode]:
    """One node per client of the partition, some of them with handlers of their own."""
    handles = handles or {}
    return [FakeNode({"partition-id": k}, handle=handles.get(k, app)) for k in range(CLIENTS)]


def train(e: Experiment, out: Path, grid: FakeGrid) -> list[Record]:
    """Train with the sites of the grid; returns the records of all new rounds."""
    return list(train_with_sites(grid, e, out))
