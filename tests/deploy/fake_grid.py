"""A stand-in for Flower's grid: real messages and a real ClientApp, in this process."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedadb.deploy.client_app import app

Handler = Callable[[Message, Context], Message]


@dataclass
class Node:
    """A node as the grid has it."""

    config: dict[str, Any]
    name: str = ""
    handle: Handler = app
    connected: bool = True
    state: RecordDict = field(default_factory=RecordDict)


class InProcess(Grid):
    """Each node answers as soon as it is asked."""

    def __init__(self, experiment: str, nodes: list[Node]) -> None:
        self.nodes = dict(enumerate(nodes, start=100))
        self.experiment = experiment
        self.sent: list[Message] = []
        self._answers: dict[str, Message] = {}
        self._numbers = itertools.count()
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [node for node, one in self.nodes.items() if one.connected]

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=n, name=self.nodes[n].name) for n in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identities = []
        for message in messages:
            self.sent.append(message)
            identity = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = identity
            node = self.nodes[message.metadata.dst_node_id]
            context = Context(1, 1, node.config, node.state, {"experiment": self.experiment})
            try:
                answer = node.handle(message, context)
            except TimeoutError:  # a node that does not answer
                identities.append(identity)
                continue
            except Exception as error:
                answer = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
            self._answers[identity] = answer
            identities.append(identity)
        return identities

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._answers.pop(i) for i in message_ids if i in self._answers]

    def send_and_receive(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError
