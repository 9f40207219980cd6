"""The process that trains with the sites: it runs only installed code, and only one run.

Everyone with an account on the server's machine can submit an application to the SuperLink, and
Flower's SuperExec would install and execute it as the server's user. This executor follows
SuperExec's protocol, but refuses every run except the one that the server submitted itself. It
reads the experiment and the run's directory from the server, and never executes what was submitted.
The protocol is not part of Flower's public interface, so flwr is pinned to one version.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedadb.core.errors import BadInput, Fault, Temporary
from fedadb.deploy import keys
from fedadb.deploy.accepted_sites import ACCEPTED, CONNECTED, public_keys
from fedadb.deploy.audit import AUDIT, ServerAudit, audit_round, audited_run
from fedadb.deploy.server_app import reported, train_with_sites
from fedadb.engine.process import end_with_parent
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import parse_toml
from fedadb.storage.files import write_atomically
from fedadb.storage.hash_chain import append_entry

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"  # the method that requires the secret
POLL_SECONDS = 0.2  # between two requests for the run
# Between two looks for a part of a reply that has not arrived yet: at first, and at most. Flower's
# own grid begins with a second, which most rounds would spend waiting.
FIRST_PART_SECONDS, LAST_PART_SECONDS = 0.02, 1.0
REFUSED = "this server executes only the run that it submitted itself"
ENDED = (
    "Flower ended the run: someone on this machine stopped it, or the SuperLink did not receive a "
    "heartbeat for too long; the same command resumes the run"
)

Connect = Callable[..., AbstractContextManager[RuntimeHttpClient]]


class Job(NamedTuple):
    """The one run that an executor executes."""

    run: int  # Flower's number of it
    application: str  # the hash of the submitted application
    superlink: str  # `HOST:PORT`
    directory: str  # of the server: its certificate, its secret, and the sites that it accepts
    experiment: str  # TOML
    out: str  # the run's directory
    from_round: int | None = None  # the round to return to
    any_kernels: bool = False  # whether to resume on other kernels

    def write(self, path: Path) -> None:
        """Write the job to a file that only its owner can read."""
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(self._asdict(), file)

    @classmethod
    def read(cls, path: Path) -> "Job":
        return cls(**json.loads(path.read_text()))


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
        accepted = public_keys(self._directory, ACCEPTED)
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


def execute(job: Job) -> None:
    """Wait for the job's run, refuse all others, and train with the sites."""
    certificate = (Path(job.directory) / keys.CA).read_bytes()
    connect = partial(RuntimeHttpClient.from_server_address, job.superlink, False, certificate)
    out = Path(job.out)
    audit = partial(append_entry, Path(job.directory) / AUDIT)
    with reported(out) as on_status, audited_run(audit, job.application, out), _explain_end():
        grid = SiteGrid(job, certificate, acquire(job, connect))
        result, reason = SubStatus.FAILED, "the server's status file has the reason"
        try:
            grid.begin(job)
            experiment = Experiment.read(parse_toml(job.experiment, "the experiment"))
            for record in train_with_sites(
                grid, experiment, out, on_status, job.from_round, job.any_kernels
            ):
                print(f"round {record['round']}: accuracy {record['accuracy']}", flush=True)
                audit_round(audit, out, record)
            result, reason = SubStatus.COMPLETED, ""
        finally:
            grid.end(result, reason)


def acquire(job: Job, connect: Connect) -> str:
    """The token of the job's run, as soon as the SuperLink has it; other runs are refused."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    secret = (Path(job.directory) / keys.SECRET).read_bytes()
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[ACQUIRE])
    request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
    retry = make_simple_http_retry_invoker()
    with connect([version, signed], retry_invoker=retry) as client:
        while True:
            answer = client.AcquireTask(request)
            if not answer.token:
                time.sleep(POLL_SECONDS)
            elif answer.task.run_id == job.run:
                return str(answer.token)
            else:
                print(f"run {answer.task.run_id} is refused: {REFUSED}", flush=True)
                _refuse(connect, answer.token)


def _refuse(connect: Connect, token: str) -> None:
    version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    output = PushTaskOutputRequest(sub_status=SubStatus.FAILED, details=REFUSED)
    with (
        suppress(httpx.HTTPError),
        connect([version, RuntimeTokenHttpInterceptor(token)]) as client,
    ):
        client.PushTaskOutput(output)


@lru_cache(maxsize=1024)
def _as_registered(public_key: str) -> bytes:
    """A site's public key in the form in which the SuperLink has it."""
    key: Any = load_ssh_public_key(public_key.encode())
    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@contextmanager
def _explain_end() -> Iterator[None]:
    """Turn the ways in which Flower ends a run into one sentence."""
    try:
        yield
    except (KeyboardInterrupt, RunNotRunningException) as error:
        raise Temporary(ENDED) from error


def main(file: str) -> None:
    # A server that is killed cannot stop this process, which keeps the run's directory locked.
    end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        execute(Job.read(Path(file)))
    except (BadInput, Fault) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
