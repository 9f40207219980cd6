"""The site's node: what it accepts, what it answers, and what a server cannot do to it."""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import Context, Message

from fedadb.core.errors import Fault, Temporary
from fedadb.deploy import keys, node, refusals
from fedadb.deploy.audit import size_and_digest
from fedadb.deploy.audit_log import AUDIT
from fedadb.deploy.client_app import app
from fedadb.deploy.node import Connection, Node
from fedadb.storage.hash_chain import append_entry, read_chain
from tests.deploy.asked_site import AskedSite, refused

pytestmark = pytest.mark.integration

OWN, OTHER = "a" * 64, "b" * 64  # hashes of applications


@pytest.fixture
def site(tmp_path: Path) -> AskedSite:
    return AskedSite(tmp_path / "site")


class FakeServer:
    """The server's end of a node's connection: messages, or exceptions instead of them."""

    def __init__(self, application: str, messages: list[Any]) -> None:
        self.application, self.messages = application, messages
        self.replies: list[Message] = []

    def connection(self) -> Connection:
        run = SimpleNamespace(fab_hash=self.application)
        unused: Any = None
        return Connection(1, self.receive, unused, lambda _: run, unused, unused, unused, unused)

    def receive(self) -> Message | None:
        if not self.messages:
            raise KeyboardInterrupt  # as Ctrl-C at the site
        message: Message | Exception = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message


@pytest.fixture
def serve(
    site: AskedSite, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[FakeServer], list[str]]]:
    """Runs the node until the server has no more messages; returns the node's log."""
    keys.make_site_keys(site.directory)
    (site.directory / keys.CA).write_bytes(b"")
    loggers = [logging.getLogger(name) for name in ("flwr", "httpx")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(refusals.LOG, "handlers", [])
    monkeypatch.setattr(refusals.LOG, "propagate", True)

    def run(server: FakeServer) -> list[str]:
        log: list[str] = []

        @contextlib.contextmanager
        def connect(*_: object) -> Iterator[Connection]:
            with contextlib.suppress(httpx.HTTPError):
                yield server.connection()

        monkeypatch.setattr(node, "http_request_response", connect)
        monkeypatch.setattr(node, "_receive", lambda connection: connection.receive())
        monkeypatch.setattr(node, "_send", lambda _, reply, __: server.replies.append(reply))
        config: Any = site.context.node_config
        audit = partial(append_entry, site.directory / AUDIT)
        parts = Node(app, OWN, config, site.experiment.toml(), log.append, audit)
        node.serve(parts, "localhost:1", site.directory / keys.CA, site.directory / keys.SITE_KEY)
        return log

    yield run
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


Serve = Callable[[FakeServer], list[str]]


def request(site: AskedSite, kind: str, **changes: Any) -> Message:
    return site.message(kind, json.dumps(site.table(kind, **changes)))


def test_the_operator_reads_what_the_server_does_not(site: AskedSite, serve: Serve) -> None:
    site.data.write_bytes(b"Jane Doe")
    server = FakeServer(OWN, [request(site, "query"), request(site, "query")])
    log = serve(server)
    assert [refused(reply).code for reply in server.replies] == ["bad-data", "bad-data"]
    assert not any(str(site.data) in str(reply.error.reason) for reply in server.replies)
    assert sum(str(site.data) in line for line in log) == 1  # and not once per message


def test_a_message_of_an_unknown_type_does_not_end_the_node(site: AskedSite, serve: Serve) -> None:
    strange = site.message("train.other", "{}")
    server = FakeServer(OWN, [strange, request(site, "query")])
    serve(server)
    assert refused(server.replies[0]).code == "bad-request"
    assert not server.replies[1].has_error()


@pytest.mark.parametrize("error", [ValueError("\x1b[2J"), KeyError(1), RecursionError(), OSError()])
def test_a_message_that_cannot_be_read_does_not_end_the_node(
    site: AskedSite, serve: Serve, error: Exception
) -> None:
    server = FakeServer(OWN, [error, error, request(site, "query")])
    log = serve(server)
    assert [reply.has_error() for reply in server.replies] == [False]
    assert sum("cannot be answered" in line for line in log) == 1
    assert "\x1b" not in "".join(log)


@pytest.mark.parametrize(
    "error", [httpx.ReadError("closed"), httpx.ConnectError("certificate has expired")]
)
def test_a_connection_that_ends_is_reported(error: Exception, serve: Serve) -> None:
    with pytest.raises(Temporary, match="the connection to localhost:1 ended"):
        serve(FakeServer(OWN, [error]))


@pytest.mark.parametrize(("status", "revoked"), [("401 Unauthorized", True), ("200 OK", False)])
def test_a_site_that_was_revoked_says_so(status: str, revoked: bool, serve: Serve) -> None:
    """Flower interrupts the process after a 401, as Ctrl-C does."""

    class Refusing(FakeServer):
        def receive(self) -> None:
            logging.getLogger("httpx").info('HTTP Request: POST https://x "HTTP/1.1 %s"', status)
            raise KeyboardInterrupt

    expected: Any = contextlib.nullcontext()
    if revoked:
        expected = pytest.raises(Fault, match="localhost:1 no longer accepts this site's key")
    with expected:
        assert serve(Refusing(OWN, []))[-1] == "disconnected"


def test_a_refused_heartbeat_is_no_traceback(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """Flower's thread of heartbeats ends with the error, and then interrupts the process."""

    def beat() -> None:
        response = httpx.Response(401, request=httpx.Request("POST", "https://x/heartbeat"))
        response.raise_for_status()

    class Refusing(FakeServer):
        def receive(self) -> None:
            thread = threading.Thread(target=beat)
            thread.start()
            thread.join()
            raise KeyboardInterrupt

    with pytest.raises(Fault, match="localhost:1 no longer accepts this site's key"):
        serve(Refusing(OWN, []))
    assert "Traceback" not in capfd.readouterr().err


def test_what_a_site_is_asked_and_answers_is_audited(site: AskedSite, serve: Serve) -> None:
    """Also what it refuses; and before an answer leaves."""
    messages = [request(site, "query"), request(site, "train", settings={})]
    server = FakeServer(OWN, messages)
    serve(server)
    entries = read_chain(site.directory / AUDIT).entries
    assert [entry["event"] for entry in entries] == [
        "connected", "asked", "answered", "asked", "refused",
    ]  # fmt: skip
    assert entries[2]["sha256"] == size_and_digest(server.replies[0].content)["sha256"]
    assert "experiment differs" in entries[4]["reason"]


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_another_application_gets_no_work(site: AskedSite, serve: Serve, kind: str) -> None:
    server = FakeServer(OTHER, [request(site, kind)])
    log = serve(server)
    code, sentence = refused(server.replies[0])
    assert code == "other-application"
    assert f"accepts application {OWN[:12]} only, and the server runs {OTHER[:12]}" in sentence
    assert any(sentence in line for line in log)
    assert not (site.directory / "state").exists()


def test_both_ends_learn_in_what_the_experiments_differ(site: AskedSite, serve: Serve) -> None:
    settings = {**site.table("query")["settings"], "rounds": 9}
    server = FakeServer(OTHER, [request(site, "query", settings=settings)] * 3)
    log = serve(server)
    code, sentence = refused(server.replies[0])
    assert (code, "rounds is 9 there and 3 here" in sentence) == ("other-experiment", True)
    assert sum(sentence in line for line in log) == 1
    assert {code} <= refusals.FINAL


def test_both_ends_learn_that_the_versions_differ(site: AskedSite, serve: Serve) -> None:
    server = FakeServer(OTHER, [request(site, "query", version="99.0")])
    log = serve(server)
    code, sentence = refused(server.replies[0])
    assert (code, "version '99.0' of fedadb" in sentence) == ("other-version", True)
    assert any(sentence in line for line in log)


def test_what_a_handler_raises_stays_at_the_site(site: AskedSite, serve: Serve) -> None:
    """Also if the handler is not this package's."""

    def fail(message: Message, context: Context) -> Message:
        raise RuntimeError("/srv/Jane Doe")

    reply = node._handle(Node(fail, OWN, {}, "", print), request(site, "train"), site.context)
    assert refused(reply) == ("failed", "the site failed; its log says why (RuntimeError)")
