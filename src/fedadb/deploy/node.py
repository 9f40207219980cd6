"""A site's node in one process that stays: it asks for work, does it, and sends the answer.

Flower's own SuperNode waits three seconds between questions and starts a Python process for each
message. This one speaks to the SuperLink as a SuperNode does, but looks several times a second,
keeps torch and the data loaded, opens no port, and runs no code that it is sent: what it does is
what is installed here. The connection is not part of Flower's public interface, and flwr is pinned
to the version it was written for. Nothing else in this package uses such parts.
"""

import contextlib
import hashlib
import logging
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
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

from fedadb.core.errors import BadInput, Fault
from fedadb.storage.files import write_atomically
from fedadb.deploy.exchange import EVALUATE, QUERY, RAISED, TRAIN
from fedadb.deploy.processes import interrupt

POLL = 0.2  # seconds between questions
PATH = re.compile(r"(?:/[^\s/:;,'\"]+)+/?")  # names of files do not leave the site
NODE = "node"  # beside the site's key: as which node it was connected last
REVOKED = "'401 "  # as httpx writes it
REFUSED = 7  # Flower's code for an application that is not wanted

Handler = Callable[[Message, Context], Message]


def application_hash(directory: Path) -> str:
    """The hash by which Flower knows the application in a directory."""
    return hashlib.sha256(build_fab_from_disk(directory)).hexdigest()


class Link(NamedTuple):
    """What Flower's connection offers, in its order."""

    node: int
    receive: Callable[[], Any]
    send: Callable[..., Any]
    get_run: Callable[[int], Any]
    get_application: Callable[..., Any]
    pull: Callable[..., Any]
    push: Callable[..., Any]
    confirm: Callable[..., Any]


class Node(NamedTuple):
    """What a site's node does, and knows of itself."""

    handle: Handler
    application: str  # the hash of the only one that it accepts
    config: dict[str, Any]
    experiment: str
    tell: Callable[[str], None]


def serve(node: Node, address: str, certificate: Path, key: Path) -> None:
    """Answer until the process is told to end."""
    node = node._replace(tell=_once(node.tell))
    private: Any = load_ssh_private_key(key.read_bytes(), None)
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    last = key.with_name(NODE)
    if last.exists():
        _leave(address, certificate, private, int(last.read_text()))
    with (
        _refusals(address, node.tell),
        http_request_response(
            address, False, certificate.read_bytes(), (private, private.public_key())
        ) as parts,
    ):
        link = Link(*parts)
        write_atomically(last, str(link.node).encode())
        node.tell(f"connected to {address}")
        while True:
            try:
                if message := _receive(link):
                    began = time.monotonic()
                    _send(link, _reply(node, link, message), time.monotonic() - began)
                else:
                    time.sleep(POLL)
            except (RunNotRunningException, ObjectPullError) as error:
                reason = str(error) or "its run has ended"
                node.tell(f"the server gave up what it asked for: {reason}")


def _receive(link: Link) -> Message | None:
    """The next message, if there is one; a server that is away is waited for."""
    got = link.receive()
    if got is None:
        return None
    head, tree = got
    message = pull_and_inflate_object_from_tree(
        tree,
        partial(link.pull, head.metadata.run_id),
        partial(link.confirm, head.metadata.run_id),
        return_type=Message,
        initial_backoff=POLL,  # its parts may still be on their way to the SuperLink
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _reply(node: Node, link: Link, message: Message) -> Message:
    """The handler's answer, if the message belongs to the application that is accepted."""
    run = message.metadata.run_id
    config: dict[str, Any] = {"experiment": node.experiment}
    context = Context(run, link.node, node.config, RecordDict(), config)
    if link.get_run(run).fab_hash == node.application:
        return _answer(node, message, context)
    if message.metadata.message_type == QUERY:
        # The handler, which is this site's own, says best in what the experiments differ.
        reply = _answer(node, message, context)
        if reply.has_error():
            return reply
    reason = (
        f"this site accepts application {node.application[:12]} alone, and the server runs "
        "another: give both the same experiment and the same version of fedadb"
    )
    node.tell(reason)
    return Message(Error(REFUSED, reason), reply_to=message)


def _leave(address: str, certificate: Path, private: Any, node: int) -> None:
    """Sign off what an earlier process, if it was killed, could not: else nobody gets in."""
    signed = NodeAuthHttpInterceptor(private, private.public_key())
    versioned = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    with (
        contextlib.suppress(httpx.HTTPError, RuntimeError),
        FleetHttpClient.from_server_address(
            address, False, certificate.read_bytes(), interceptors=[versioned, signed]
        ) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))


def _once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tell nothing twice in a row: a site that is refused is asked again and again."""
    last = ""

    def told(line: str) -> None:
        nonlocal last
        if line != last:
            tell(line)
        last = line

    return told


@contextlib.contextmanager
def _refusals(address: str, tell: Callable[[str], None]) -> Iterator[None]:
    """In one sentence, what Flower ends the process with."""
    said: list[str] = []
    log = logging.getLogger("flwr")
    log.handlers, log.propagate = [_Listener(said)], False
    try:
        yield
    except KeyboardInterrupt:  # which a refused heartbeat sends as well
        if not any(REVOKED in line for line in said):
            tell("left")
            return
    except SystemExit as error:
        if any(f"[code: {code}]" in line for line in said for code in (2001, 2004)):
            raise BadInput(
                f"{address} does not let this site in: its site.pub must lie in sites/ at the "
                "server before that starts, and no other process may use the same key"
            ) from error
        told = " ".join(" ".join(said).split()) or f"exit code {error.code}"
        raise Fault(f"the connection to {address} failed: {told}") from error
    if any(REVOKED in line for line in said):
        raise Fault(f"{address} no longer accepts this site's key")
    raise Fault(f"the connection to {address} ended: {' '.join(said)}")


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _answer(node: Node, message: Message, context: Context) -> Message:
    what, began = _what(message), time.monotonic()
    try:
        reply = node.handle(message, context)
    except Exception as error:
        if not isinstance(error, (BadInput, Fault)):
            sys.excepthook(type(error), error, error.__traceback__)
        node.tell(f"{what}: {error}")
        told = f"{type(error)}:<'{PATH.sub('a file of this site', str(error))}'>"
        return Message(Error(RAISED, told), reply_to=message)
    node.tell(f"{what}: done in {time.monotonic() - began:.1f} s")
    return reply


def _what(message: Message) -> str:
    kinds = {QUERY: "introduction", TRAIN: f"round {message.metadata.group_id}", EVALUATE: "test"}
    return kinds[message.metadata.message_type]


def _send(link: Link, reply: Message, seconds: float) -> None:
    run = reply.metadata.run_id
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        wanted, session = link.send(reply, get_object_tree(reply), seconds)
        push = partial(link.push, run, session)
        push_objects(get_all_nested_objects(reply), push, object_ids_to_push=wanted)
