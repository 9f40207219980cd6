"""An HTTP server that cuts off slow clients, for a proxy that strangers can reach.

Each connection has a task. Every wait for the client has a deadline, so the task ends.
"""

import asyncio
import contextlib
import email.utils
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import h11

from fedadb.deploy.connections import Limits, OpenConnections

BLOCK = 64 << 10  # bytes to read or write at once
# Closed connections between two garbage collections. With TLS, asyncio leaves a reference cycle of
# 256 kB for each, and Python would collect them only after thousands.
COLLECT = 64
BACKLOG = 1024  # connections that wait to be accepted


class Head(NamedTuple):
    """A request without its body."""

    method: str
    target: str
    headers: Mapping[str, str]  # the names in lower case; of equal names, the last


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


def text_response(status: int, text: str) -> Response:
    return Response(status, {"content-type": "text/plain"}, text.encode())


class Connection:
    """A client's connection after its TLS handshake."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: str,
        recognise: Callable[[str], None],
        limits: Limits,
    ) -> None:
        self.client = client  # the address, or the site's name once it is known
        self.busy = False  # with a request whose head has arrived
        self._reader, self._writer, self._limits = reader, writer, limits
        self._recognise = recognise
        self._http = h11.Connection(h11.SERVER)
        self._seconds = limits.first_request
        self._method = ""
        self._ended = False

    def recognise(self, site: str) -> None:
        """Count this connection for a site from now on."""
        self.client = site
        self._recognise(site)

    async def next_request(self) -> Head | None:
        """The next request, if the client sends one in time."""
        self.busy = False
        if self._ended:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                event = await self._next_event()
            if isinstance(event, h11.Request):
                self.busy, self._method = True, event.method.decode()
                headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in event.headers}
                return Head(self._method, event.target.decode(), headers)
        return None

    async def read_body(self, keep: bool) -> bytes:
        """The request's body; b"" if it is not to be kept. TimeoutError if it comes too slowly."""
        began = asyncio.get_running_loop().time()
        blocks: list[bytes] = []
        received = 0
        while True:
            async with asyncio.timeout_at(self._deadline(began, received)):
                event = await self._next_event()
            if not isinstance(event, h11.Data):
                return b"".join(blocks)
            received += len(event.data)
            if keep:
                blocks.append(bytes(event.data))

    async def respond(self, response: Response, close: bool = False) -> None:
        """Send a response. TimeoutError if the client reads it too slowly."""
        content = response.content
        now = email.utils.formatdate(usegmt=True)  # sites compare their clocks with it
        headers = {**response.headers, "date": now, "content-length": str(len(content))}
        if close:
            headers["connection"] = "close"
        began, sent = asyncio.get_running_loop().time(), 0
        self._send(h11.Response(status_code=response.status, headers=list(headers.items())))
        while self._method != "HEAD" and sent < len(content):
            self._send(h11.Data(data=content[sent : sent + BLOCK]))
            sent += BLOCK
            async with asyncio.timeout_at(self._deadline(began, sent)):
                await self._writer.drain()
        self._send(h11.EndOfMessage())
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
            self._seconds = self._limits.idle
        else:
            self._ended = True

    def refuse_malformed(self) -> None:
        """Answer a request that is not valid HTTP, unless a response has begun."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("content-length", "0"), ("connection", "close")]
            self._send(h11.Response(status_code=400, headers=headers))

    def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")

    def _deadline(self, began: float, transferred: int) -> float:
        """The time at which the next block is too late."""
        now = asyncio.get_running_loop().time()
        return self._limits.grace + min(now, began + transferred / self._limits.rate)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(BLOCK))
        return event


Handler = Callable[[Connection], Awaitable[None]]


class Server:
    """Accepts connections, and calls the handler for each that completes its TLS handshake.

    Args:
        handler: Answers the requests of a connection.
        context: That of TLS; None: without TLS.
        limits: What clients may occupy.
        log: Called with a line whenever something goes wrong with a client.
    """

    def __init__(
        self,
        handler: Handler,
        context: ssl.SSLContext | None,
        limits: Limits,
        log: Callable[[str], None],
    ) -> None:
        self._handler, self._context, self._limits, self._log = handler, context, limits, log
        self._open = OpenConnections(limits, log)
        self._connections: dict[asyncio.Task[None], Connection | None] = {}
        self._closed = 0

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until cancelled; then requests that have arrived get their response."""
        loop = asyncio.get_running_loop()
        # By default asyncio writes a traceback for each client that breaks the TLS protocol.
        loop.set_exception_handler(lambda _, context: self._log(str(context["message"])))
        try:
            await asyncio.gather(*map(self._accept, sockets))
        finally:
            for task, connection in self._connections.items():
                if connection is None or not connection.busy:
                    task.cancel()
            if self._connections:
                await asyncio.wait(list(self._connections), timeout=self._limits.close)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # too many open files, or a client that is gone
                self._log(f"a connection could not be accepted: {error.strerror}")
                self._open.make_room()
                await asyncio.sleep(0.1)
                continue
            task = loop.create_task(self._serve(accepted, address[0]))
            self._connections[task] = None
            self._open.add(task, address[0])
            task.add_done_callback(partial(self._forget, accepted))

    def _forget(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        accepted.close()  # also if the task was cancelled before it began
        del self._connections[task]
        self._open.remove(task)
        self._closed += 1
        if self._context and self._closed % COLLECT == 0:
            gc.collect()

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        reader = asyncio.StreamReader(limit=BLOCK)
        try:
            transport, protocol = await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake if self._context else None,
                ssl_shutdown_timeout=self._limits.close if self._context else None,
            )
        except OSError:  # no TLS, no trust in our certificate, or too slow
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        recognise = partial(self._open.recognise, task)
        connection = Connection(reader, writer, address, recognise, self._limits)
        self._connections[task] = connection
        try:
            await self._handle(connection)
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._limits.close):
                    await writer.wait_closed()
        finally:
            transport.abort()

    async def _handle(self, connection: Connection) -> None:
        """Call the handler; whatever goes wrong with a client is one line in the log."""
        try:
            await self._handler(connection)
        except TimeoutError:
            self._log(f"{connection.client}: cut off, because it sends or reads too slowly")
        except h11.RemoteProtocolError as error:
            self._log(f"{connection.client}: {error}")
            connection.refuse_malformed()
        except OSError as error:
            if connection.busy:
                self._log(f"{connection.client}: the connection broke in a request: {error}")
        except Exception as error:
            self._log(f"{connection.client}: {type(error).__name__}: {error}")


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host's name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets = []
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        listening = socket.create_server(address, family=family, backlog=BACKLOG)
        listening.setblocking(False)
        sockets.append(listening)
    return sockets
