"""A site's Flower node in one process: it pulls messages, trains, and sends the replies.

Flower's own SuperNode waits three seconds between two pulls, and starts a Python process for each
message. This node follows the SuperNode's protocol, but pulls several times per second, keeps torch
and the data loaded, opens no port, and runs no code that it receives: only what is installed here.
The connection is not part of Flower's public interface, so flwr is pinned to one version.
"""

import contextlib
import hashlib
import signal
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedadb.deploy import refusals
from fedadb.deploy.audit import Audit, audit_answer, audit_request
from fedadb.deploy.messages import QUERY, shown
from fedadb.deploy.node_log import ErrorShower, explain_end
from fedadb.interruption import interrupt_handler
from fedadb.storage.files import write_atomically

# Between two pulls: the first; or, of the time without a message, this share, up to the last. All
# sites together must not keep the server busy while they wait.
POLL_SECONDS, POLL_SHARE, MAX_POLL_SECONDS = 0.2, 0.02, 1.0
NODE_ID = "node"  # file beside the site's key: the node that the site was when it last connected

Handler = Callable[[Message, Context], Message]


def application_hash(directory: Path) -> str:
    """The hash by which Flower identifies the application in a directory."""
    return hashlib.sha256(build_fab_from_disk(directory)).hexdigest()


class Connection(NamedTuple):
    """The functions of Flower's connection to the SuperLink, in Flower's order."""

    node: int
    receive: Callable[[], Any]
    send: Callable[..., Any]
    get_run: Callable[[int], Any]
    get_application: Callable[..., Any]
    pull: Callable[..., Any]
    push: Callable[..., Any]
    confirm: Callable[..., Any]


class Node(NamedTuple):
    """What a site's node needs besides the connection."""

    handle: Handler
    application: str  # the hash of the only application that it accepts
    config: dict[str, Any]
    experiment: str  # TOML
    log: Callable[[str], None]
    audit: Audit = lambda event, **fields: None


def serve(node: Node, address: str, certificate: Path, key: Path) -> None:
    """Answer messages until SIGTERM or Ctrl-C."""
    node = node._replace(log=_without_repetitions(node.log))
    refusals.LOG.handlers, refusals.LOG.propagate = [ErrorShower(node.log)], False
    private: Any = load_ssh_private_key(key.read_bytes(), None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt_handler())
    node_id = key.with_name(NODE_ID)
    if node_id.exists():
        deactivate(address, certificate, private, int(node_id.read_text()))
    with (
        explain_end(address, node.log),
        http_request_response(
            address, False, certificate.read_bytes(), (private, private.public_key())
        ) as functions,
    ):
        connection = Connection(*functions)
        # A run's application does not change, so it is asked for once.
        connection = connection._replace(get_run=lru_cache(maxsize=8)(connection.get_run))
        write_atomically(node_id, str(connection.node).encode())
        node.log(f"connected to {address}")
        node.audit("connected", server=address)
        answered = time.monotonic()
        while True:
            try:
                if message := _receive(connection):
                    began = time.monotonic()
                    audit_request(node.audit, message)
                    reply = _reply(node, connection, message)
                    audit_answer(node.audit, message, reply)
                    _send(connection, reply, time.monotonic() - began)
                    answered = time.monotonic()
                else:
                    idle = time.monotonic() - answered
                    time.sleep(min(max(POLL_SECONDS, idle * POLL_SHARE), MAX_POLL_SECONDS))
            except (RunNotRunningException, ObjectPullError) as error:
                node.log(f"the server no longer needs the reply: {str(error) or 'the run ended'}")
            except httpx.HTTPError:  # the connection ended, or the server refuses this site
                raise
            except Exception as error:  # whatever a server sends, the site continues
                node.log(
                    f"a message cannot be answered: {shown(f'{type(error).__name__}: {error}')}"
                )
                time.sleep(POLL_SECONDS)


def deactivate(address: str, certificate: Path, private: Any, node: int) -> None:
    """Sign off a node whose process was killed; otherwise the SuperLink refuses a new one."""
    signed = NodeAuthHttpInterceptor(private, private.public_key())
    versioned = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    with (
        contextlib.suppress(httpx.HTTPError, RuntimeError),
        FleetHttpClient.from_server_address(
            address, False, certificate.read_bytes(), interceptors=[versioned, signed]
        ) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))


def _receive(connection: Connection) -> Message | None:
    """The next message, if there is one; waits for a server that cannot be reached."""
    received = connection.receive()
    if received is None:
        return None
    header, tree = received
    run = header.metadata.run_id
    message = pull_and_inflate_object_from_tree(
        tree,
        partial(connection.pull, run),
        partial(connection.confirm, run),
        return_type=Message,
        initial_backoff=POLL_SECONDS,  # the SuperLink may not have all parts yet
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _reply(node: Node, connection: Connection, message: Message) -> Message:
    """The handler's reply, if the message belongs to the accepted application."""
    run = message.metadata.run_id
    config: dict[str, Any] = {"experiment": node.experiment}
    context = Context(run, connection.node, node.config, RecordDict(), config)
    if connection.get_run(run).fab_hash == node.application:
        return _handle(node, message, context)
    if message.metadata.message_type == QUERY:
        # The site's own handler compares the experiments and says in which setting they differ.
        reply = _handle(node, message, context)
        if reply.has_error():
            return reply
    there = shown(connection.get_run(run).fab_hash, 12)
    reason = (
        f"this site accepts application {node.application[:12]} only, and the server runs {there}: "
        "use the same experiment and the same version of Flower at both"
    )
    refusal = refusals.Refusal(refusals.OTHER_APPLICATION, reason, travels=True)
    return refusals.answer(message, refusal)


def _handle(node: Node, message: Message, context: Context) -> Message:
    """The handler's reply; if it raises, an error that contains none of the site's data."""
    began = time.monotonic()
    try:
        reply = node.handle(message, context)
    except Exception as error:
        return refusals.answer(message, error)
    if not reply.has_error():
        node.log(f"{refusals.describe(message)}: done in {time.monotonic() - began:.1f} s")
    return reply


def _send(connection: Connection, reply: Message, seconds: float) -> None:
    run = reply.metadata.run_id
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        wanted, session = connection.send(reply, get_object_tree(reply), seconds)
        push = partial(connection.push, run, session)
        push_objects(get_all_nested_objects(reply), push, object_ids_to_push=wanted)


def _without_repetitions(log: Callable[[str], None]) -> Callable[[str], None]:
    """Log no line twice in a row: the server asks a refused site again and again."""
    last = ""

    def log_once(line: str) -> None:
        nonlocal last
        if line != last:
            log(line)
        last = line

    return log_once
