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
from typing import Any

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
from fedadb.core.files import write_whole

POLL = 0.2  # seconds between questions
PATH = re.compile(r"(?:/[^\s/:;,'\"]+)+/?")  # names of files do not leave the site
NODE = "node"  # beside the site's key: as which node it was connected last
REVOKED = "'401 "  # as httpx writes it
RAISED, REFUSED = 2, 7  # Flower's codes for an error of the app, and for an app that is not wanted

Handler = Callable[[Message, Context], Message]


def application_hash(directory: Path) -> str:
    """The hash by which Flower knows the application in a directory."""
    return hashlib.sha256(build_fab_from_disk(directory)).hexdigest()


def serve(
    handle: Handler,
    address: str,
    certificate: Path,
    key: Path,
    application: str,
    node_config: dict[str, Any],
    run_config: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    """Answer until the process is told to end."""
    private: Any = load_ssh_private_key(key.read_bytes(), None)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    last = key.with_name(NODE)
    if last.exists():
        _leave(address, certificate, private, int(last.read_text()))
    with (
        _refusals(address),
        http_request_response(
            address, False, certificate.read_bytes(), (private, private.public_key())
        ) as (node, receive, send, get_run, _, pull, push, confirm),
    ):
        write_whole(last, str(node).encode())
        tell(f"connected to {address}")
        while True:
            try:
                got = receive()  # waits for a server that is away, for as long as that takes
                if got is None:
                    time.sleep(POLL)
                    continue
                head, tree = got
                run = head.metadata.run_id
                message = pull_and_inflate_object_from_tree(
                    tree,
                    partial(pull, run),
                    partial(confirm, run),
                    return_type=Message,
                    initial_backoff=POLL,  # its parts may still be on their way to the SuperLink
                )
                message.metadata.__dict__["_message_id"] = tree.object_id
                context = Context(run, node, node_config, RecordDict(), run_config)
                began = time.monotonic()
                wanted = get_run(run).fab_hash == application
                # To an introduction the handler itself says best in what experiments differ.
                if wanted or message.metadata.message_type == "query":
                    reply = _answer(handle, message, context, tell)
                if not wanted and (message.metadata.message_type != "query" or reply.has_content()):
                    reply = _refusal(message, application)
                    tell(str(reply.error.reason))
                _send(reply, time.monotonic() - began, run, send, push)
            except (RunNotRunningException, ObjectPullError) as error:
                tell(f"the server gave up what it asked for: {error or 'its run has ended'}")


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


def _end(*_: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _refusals(address: str) -> Iterator[None]:
    """In one sentence, what Flower ends the process with."""
    said: list[str] = []
    log = logging.getLogger("flwr")
    log.handlers, log.propagate = [_Listener(said)], False
    try:
        yield
    except KeyboardInterrupt:  # which a refused heartbeat sends as well
        if not any(REVOKED in line for line in said):
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


def _answer(
    handle: Handler, message: Message, context: Context, tell: Callable[[str], None]
) -> Message:
    kind, t = message.metadata.message_type, message.metadata.group_id
    began = time.monotonic()
    try:
        reply = handle(message, context)
    except Exception as error:
        if not isinstance(error, (BadInput, Fault)):
            sys.excepthook(type(error), error, error.__traceback__)
        tell(f"{kind} {t}: {error}")
        told = f"{type(error)}:<'{PATH.sub('a file of this site', str(error))}'>"
        return Message(Error(RAISED, told), reply_to=message)
    tell(f"{kind} {t}: done in {time.monotonic() - began:.1f} s".replace("  ", " "))
    return reply


def _refusal(message: Message, accepted: str) -> Message:
    reason = (
        f"this site accepts application {accepted[:12]} alone, and the server runs another: give "
        "both the same experiment and the same version of fedadb"
    )
    return Message(Error(REFUSED, reason), reply_to=message)


def _send(reply: Message, seconds: float, run_id: int, send: Any, push: Any) -> None:
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        wanted, session = send(reply, get_object_tree(reply), seconds)
        push_objects(
            get_all_nested_objects(reply), partial(push, run_id, session), object_ids_to_push=wanted
        )
