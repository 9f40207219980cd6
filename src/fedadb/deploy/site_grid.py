"""The server's connection to its sites, through the SuperLink.

It extends a class of Flower's that is not part of its public interface, so flwr is pinned to one
version.
"""

import signal
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from flwr.app import Message
from flwr.common.serde import run_from_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedadb.core.errors import Fault
from fedadb.deploy.accepted_sites import CONNECTED, accepted_keys
from fedadb.deploy.audit import ServerAudit
from fedadb.deploy.audit_log import AUDIT
from fedadb.deploy.job import Job
from fedadb.storage.files import write_atomically
from fedadb.storage.hash_chain import append_entry

# Between two looks for a part of a reply that has not arrived yet: at first, and at most. Flower's
# own grid begins with a second, which most rounds would spend waiting.
FIRST_PART_SECONDS, LAST_PART_SECONDS = 0.02, 1.0


class SiteGrid(HttpGrid):
    """Flower's connection to the nodes, restricted to the sites whose keys the server has.

    Everyone on this machine can register a node under any name. So a node is recognised by its
    public key, with which it signs its requests, and the server decides on its name.
    """

    def __init__(self, job: Job, certificate: bytes, token: str) -> None:
        super().__init__(job.superlink, False, certificate, token=token)
        self._directory, self._connected = Path(job.directory), -1
        self._audit = ServerAudit(partial(append_entry, self._directory / AUDIT))

    def get_nodes(self) -> Iterable[NodeInfo]:
        # Read each time, because sites join and are revoked while a run lasts.
        accepted = accepted_keys(self._directory)
        names = {_as_registered(key): name for name, key in accepted.items()}
        nodes = [node for node in super().get_nodes() if node.public_key in names]
        for node in nodes:
            node.name = names[node.public_key]
        self._audit.name_of = {node.node_id: node.name for node in nodes}
        if len(nodes) != self._connected:
            self._connected = len(nodes)
            write_atomically(self._directory / CONNECTED, b"%d" % self._connected)
        return nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        questions = self._audit.sent(messages)
        message_ids = list(super().push_messages(messages))
        self._audit.expect(dict(zip(message_ids, questions, strict=True)))
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The reply to the only one of these messages, if it was announced; waits for its parts."""
        (message_id,) = message_ids  # `delivery` pulls each reply by itself
        client, run = self._runtime_client, self.run.run_id
        answer = client.PullMessages(PullAppMessagesRequest(message_ids=[message_id]))
        pull = make_pull_object_fn_protobuf(client.PullObject, self.node, run)
        confirm = make_confirm_message_received_fn_protobuf(
            client.ConfirmMessageReceived, self.node, run
        )
        replies = [
            pull_and_inflate_object_from_tree(
                tree,
                pull,
                confirm,
                return_type=Message,
                max_tries_per_object=None,
                initial_backoff=FIRST_PART_SECONDS,
                backoff_cap=LAST_PART_SECONDS,
            )
            for tree in answer.message_object_trees
        ]
        for reply in replies:
            self._audit.received(message_id, reply)
        return replies

    def begin(self, job: Job) -> None:
        """Tell the SuperLink that the run begins, and send heartbeats until this process ends."""
        HeartbeatSender(make_task_heartbeat_fn_http(self._runtime_client)).start()
        task = self._runtime_client.PullTaskInput(PullTaskInputRequest())
        if task.run.fab_hash != job.application:
            raise Fault(
                f"run {job.run} has application {task.run.fab_hash[:12]}, but the server submitted "
                f"{job.application[:12]}; the same command submits the run again"
            )
        # Flower's messages take their run from here.
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        self.set_run(run_from_proto(task.run))

    def end(self, result: str, reason: str) -> None:
        """Tell the SuperLink how the run ended, unless it does not respond."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Flower raises it when a heartbeat is refused
        self._retry_invoker.max_tries = 1
        with suppress(httpx.HTTPError, RunNotRunningException):
            request = PushTaskOutputRequest(sub_status=result, details=reason)
            self._runtime_client.PushTaskOutput(request)


@lru_cache(maxsize=1024)
def _as_registered(public_key: str) -> bytes:
    """A site's public key in the form in which the SuperLink has it."""
    key: Any = load_ssh_public_key(public_key.encode())
    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
