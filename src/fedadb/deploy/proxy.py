"""A reverse proxy that publishes the nodes' API of a SuperLink, for registered sites only.

A SuperLink has one port for all its APIs. The control and runtime APIs require no login, so anyone
who reaches the port can submit code to all sites. Therefore the SuperLink listens on 127.0.0.1
only, and this proxy, which has its own TLS, forwards the requests of nodes. Nodes sign them with
their keys. The proxy checks the signature before it reads a body, and opens a connection to the
SuperLink only when the body is complete.
"""

import argparse
import asyncio
import datetime as dt
import gc
import json
import logging
import resource
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from fedadb.deploy import keys, node_requests
from fedadb.deploy.connections import Limits
from fedadb.deploy.followed_files import follow_certificate, follow_keys
from fedadb.deploy.http_server import (
    Connection,
    Head,
    Response,
    Server,
    listening_sockets,
    text_response,
)

MAX_UPLOAD = 1 << 30  # bytes per message, if the command line does not say otherwise
FORWARDED = {"accept", "content-type", "user-agent"}  # besides Flower's own headers
HOP_BY_HOP = {"connection", "content-length", "date", "keep-alive", "proxy-authenticate",
              "trailer", "transfer-encoding", "upgrade"}  # fmt: skip
LINES_PER_MINUTE = 60  # in the log: a stranger must not fill the disk
NO_RESPONSE = 503  # of the SuperLink


@dataclass
class Site:
    """What a site may do at the moment."""

    requests: asyncio.Semaphore
    upload: int  # bytes that it may upload until the server sends it the next message


class Proxy:
    """Forwards the requests of registered sites to the SuperLink.

    Args:
        client: Connects to the SuperLink.
        limits: What clients may occupy.
        max_upload: Bytes that a site may upload per message that the server sends it. The bodies of
            push-messages and push-object count, if the SuperLink has answered them. The proxy
            grants the bytes when it starts, and anew when it delivers a message to the site.
        log: Called with a line for each refusal.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        limits: Limits,
        max_upload: int,
        log: Callable[[str], None],
    ) -> None:
        self._client, self._limits = client, limits
        self._max_upload, self._log = max_upload, log
        self._registered: node_requests.Keys = {}
        self._sites: dict[str, Site] = {}

    def accept(self, registered: node_requests.Keys) -> None:
        """Accept the requests of these sites from now on, and of no others."""
        self._registered = registered
        for name, _ in registered.values():
            site = Site(asyncio.Semaphore(self._limits.requests), self._max_upload)
            self._sites.setdefault(name, site)

    async def handle(self, connection: Connection) -> None:
        """Answer the requests of a connection; a request that is not a site's closes it."""
        while head := await connection.next_request():
            name = node_requests.signer(head.headers, self._registered, dt.datetime.now(dt.UTC))
            if refusal := self._refusal(head, name):
                self._log(f"{connection.client}: {refusal.status} {refusal.content.decode()}")
                await connection.respond(refusal, close=True)
            elif name is not None:
                connection.recognise(name)
                site = self._sites[name]
                async with site.requests:
                    await connection.respond(await self._answer(site, head, connection))

    def _refusal(self, head: Head, signer: str | None) -> Response | None:
        """The reason not to read a request's body."""
        if head.method != "POST" or not node_requests.PATH.fullmatch(head.target):
            return text_response(403, "only the API for nodes is published here")
        if signer is None:
            foreign = node_requests.has_foreign_key(head.headers, self._registered)
            if foreign and head.target == node_requests.ACTIVATE:
                return Response(412, {}, node_requests.NOT_REGISTERED)
            return text_response(401, "the request has no valid signature of a site")
        if "content-length" not in head.headers or "transfer-encoding" in head.headers:
            return text_response(411, "the request has no content-length")
        upload = head.target in node_requests.UPLOADS
        if _length(head) > (self._limits.body if upload else self._limits.small_body):
            return text_response(413, "the request is too large")
        return None

    async def _answer(self, site: Site, head: Head, connection: Connection) -> Response:
        if head.target == node_requests.VERSIONS:
            await connection.read_body(keep=False)
            text = json.dumps(node_requests.VERSIONS_HERE)
            return Response(200, {"content-type": "application/json"}, text.encode())
        counted = _length(head) if head.target in node_requests.UPLOADS else 0
        if counted > site.upload:
            await connection.read_body(keep=False)  # otherwise the site would not read the response
            reason = f"a reply must not have more than {self._max_upload} bytes"
            self._log(f"{connection.client}: 413 {reason}")
            return text_response(413, reason)
        site.upload -= counted
        status = NO_RESPONSE
        try:
            body = await connection.read_body(keep=True)
            response = await self._forward(head, body)
            status = response.status
        finally:
            if status == NO_RESPONSE:  # the site will send it again
                site.upload = min(site.upload + counted, self._max_upload)
        if (
            head.target == node_requests.PULL
            and status == 200
            and node_requests.delivers_message(response.content)
        ):
            site.upload = self._max_upload
        return response

    async def _forward(self, head: Head, body: bytes) -> Response:
        headers = {k: v for k, v in head.headers.items() if k in FORWARDED or k.startswith("flwr-")}
        headers["accept-encoding"] = "identity"
        try:
            # The whole response, so that a client that reads slowly does not keep the connection.
            got = await self._client.post(head.target, headers=headers, content=body)
        except httpx.TransportError as error:
            self._log(f"the SuperLink does not respond: {type(error).__name__}")
            return text_response(NO_RESPONSE, "the SuperLink does not respond")
        kept = {k: v for k, v in got.headers.items() if k.lower() not in HOP_BY_HOP}
        return Response(got.status_code, kept, got.content)


def _length(head: Head) -> int:
    return int(head.headers["content-length"])  # h11 has checked it


class LimitedLog:
    """Writes single lines to the standard error, and not too many per minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._minute, self._lines = clock, 0, 0
        self._logger = logging.getLogger(__name__)

    def __call__(self, line: str) -> None:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            if self._lines > LINES_PER_MINUTE:
                self._logger.warning("%d more lines", self._lines - LINES_PER_MINUTE)
            self._minute, self._lines = minute, 0
        self._lines += 1
        if self._lines <= LINES_PER_MINUTE:
            self._logger.warning("%s", line.replace("\n", " ")[:500])


async def serve(
    address: tuple[str, int],
    superlink: str,
    files: tuple[Path, Path, Path],
    sites: Path,
    max_upload: int = MAX_UPLOAD,
    limits: Limits | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    """Serve until cancelled. The files are the CA's certificate, ours and its key."""
    limits, log = limits or Limits(), LimitedLog()
    ca, certificate, key = files
    loaded = certificate.read_bytes()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    sockets = listening_sockets(*address)
    try:
        async with httpx.AsyncClient(
            base_url=f"https://{superlink}",
            verify=ssl.create_default_context(cafile=str(ca)),
            timeout=httpx.Timeout(limits.response, connect=10),
            trust_env=False,  # the environment's proxies are for other machines
        ) as client:
            proxy = Proxy(client, limits, max_upload, log)
            accepted = node_requests.read_keys(sites)
            proxy.accept(accepted)
            following = [
                asyncio.create_task(follow_keys(sites, accepted, proxy.accept, log)),
                asyncio.create_task(follow_certificate(certificate, key, context, loaded, log)),
            ]
            on_start()
            try:
                await Server(proxy.handle, context, limits, log).serve(sockets)
            finally:
                for task in following:
                    task.cancel()
    finally:
        for listening in sockets:
            listening.close()


async def _serve_until_signal(arguments: argparse.Namespace) -> None:
    task = asyncio.ensure_future(
        serve(
            (arguments.host, arguments.port),
            arguments.superlink,
            (arguments.ca, arguments.certificate, arguments.key),
            arguments.sites or arguments.key.parent / keys.SITES,
            arguments.max_upload,
        )
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def main() -> None:
    parser = argparse.ArgumentParser("fedadb.deploy.proxy")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("superlink", help="HOST:PORT")
    for name in ("ca", "certificate", "key"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--sites", type=Path, help="directory of NAME.pub (beside the key)")
    parser.add_argument("--max-upload", type=int, default=MAX_UPLOAD, help="bytes per message")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is an open file
    gc.freeze()  # a collection need not visit what the imports made
    asyncio.run(_serve_until_signal(arguments))


if __name__ == "__main__":
    main()
