"""A grid in this process: real Flower messages and the real ClientApp, but no network."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedadb.deploy.client_app import app
from fedadb.deploy.server_app import train_with_sites
from fedadb.experiment.config import Experiment
from fedadb.storage.records import Record

CLIENTS = 4

Handler = Callable[[Message, Context], Message]


@dataclass
class FakeNode:
    """A node of the grid.

    Its handler may raise TimeoutError, so that no reply arrives, or ConnectionError, so that the
    SuperLink reports the node as offline.
    """

    config: dict[str, Any]
    name: str = ""
    handle: Handler = app
    connected: bool = True
    state: RecordDict = field(default_factory=RecordDict)


class FakeGrid(Grid):
    """Each node handles a message at the moment when it is sent."""

    def __init__(self, experiment: str, nodes: list[FakeNode]) -> None:
        self.nodes = dict(enumerate(nodes, start=100))
        self.experiment = experiment
        self._replies: dict[str, Message] = {}
        self._numbers = itertools.count()
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
        return [NodeInfo(node_id=n, name=self.nodes[n].name) for n in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        message_ids = []
        for message in messages:
            message_id = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = message_id
            message_ids.append(message_id)
            node = self.nodes[message.metadata.dst_node_id]
            context = Context(1, 1, node.config, node.state, {"experiment": self.experiment})
            try:
                reply = node.handle(message, context)
            except TimeoutError:
                continue
            except ConnectionError:
                reply = Message(Error(5, "Node Unavailable"), reply_to=message)
            except Exception as error:
                reply = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
            self._replies[message_id] = reply
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def experiment(algorithm: Any = "fedavg", rounds: int = 3, **deployment: Any) -> Experiment:
    """Four sites, two of them in each round."""
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "local": {"epochs": 1},
            "federation": {"clients": CLIENTS, "participation": 0.5},
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
