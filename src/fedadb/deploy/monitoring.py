"""An address for monitoring programs: GET /health and GET /metrics, and nothing else.

It is off unless the operator gives an address. It has neither TLS nor a login, and tells counts
only. What a client may occupy is limited as at the proxy.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedadb.core.errors import Fault
from fedadb.deploy.connections import Limits
from fedadb.deploy.http_server import (
    Connection,
    Response,
    Server,
    listening_sockets,
    text_response,
)
from fedadb.deploy.metrics import Watched, health, metrics_text

LIMITS = Limits(first_request=5.0, idle=30.0, grace=5.0, strangers=32, per_address=16)
FRESH_SECONDS = 1.0  # for which a response is used again
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"  # the content type of its text format


@dataclass
class Answers:
    """The responses to all requests.

    A response is used again for a second, so that many requests cost no more than one: each reads
    all records of the run.
    """

    watched: Watched
    _kept: dict[str, tuple[float, Response]] = field(default_factory=dict)  # since when, by path

    def respond(self, method: str, target: str) -> Response:
        """The response to a request, whatever it asks for."""
        if target not in ("/health", "/metrics"):
            return text_response(404, "only /health and /metrics are here")
        if method != "GET":
            return Response(405, {"allow": "GET", "content-type": "text/plain"}, b"only GET")
        made, response = self._kept.get(target, (-math.inf, None))
        if response is None or time.monotonic() - made >= FRESH_SECONDS:
            response = _describe(self.watched, target)
            self._kept[target] = time.monotonic(), response
        return response


def _describe(watched: Watched, target: str) -> Response:
    try:
        if target == "/metrics":
            return Response(200, {"content-type": PROMETHEUS}, metrics_text(watched).encode())
        ok, text = health(watched)
        status = 200 if ok else 503
        return Response(status, {"content-type": "application/json"}, text.encode())
    except (Fault, OSError, ValueError) as error:  # a file is damaged or being replaced
        logging.getLogger(__name__).warning("%s: %s", target, error)
        return text_response(500, "the state of the server cannot be read; its log says why")


@contextmanager
def monitored(watched: Watched, host: str, port: int) -> Iterator[None]:
    """Answer at the address until the end of the block."""
    sockets = listening_sockets(host, port)
    stop: list[Callable[[], object]] = []
    started, answers = threading.Event(), Answers(watched)

    async def handle(connection: Connection) -> None:
        while head := await connection.next_request():
            response = answers.respond(head.method, head.target)
            await connection.respond(response, close=head.method not in ("GET", "HEAD"))

    async def serve() -> None:
        log, loop = logging.getLogger(__name__).debug, asyncio.get_running_loop()
        task = asyncio.create_task(Server(handle, None, LIMITS, log).serve(sockets))
        stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        started.set()
        await asyncio.wait([task])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait()
    try:
        yield
    finally:
        stop[0]()
        thread.join()
        for listening in sockets:
            listening.close()
