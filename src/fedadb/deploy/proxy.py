"""What the outside reaches of a SuperLink: the nodes' API, and nothing else.

A SuperLink has one port for everything. Whoever reaches it can submit code to all sites, for its
control and runtime APIs ask for no login. So it listens on this machine alone, and this proxy, with
TLS of its own, hands on the requests of nodes, which are signed with their keys.
"""

import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

NODES = re.compile(r"/v1/fleet/[a-z-]+")
# The SuperLink reads a request whole before it looks who sent it; Flower's parts are 5 MB.
LARGEST = 16 << 20
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host",
              "proxy-authenticate", "proxy-authorization"}  # fmt: skip


def front(superlink: str, ca: Path) -> Starlette:
    """An application that hands on what nodes ask of the SuperLink at that address."""
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=ssl.create_default_context(cafile=str(ca)),
        timeout=httpx.Timeout(300, connect=10),
        trust_env=False,  # a proxy for the outside is none for this machine
    )

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    async def hand_on(request: Request) -> Response:
        # The path as it was sent: nothing encoded in it can become another one further on.
        path = request.scope["raw_path"].decode("ascii", "replace")
        if request.method != "POST" or not NODES.fullmatch(path) or request.url.query:
            return PlainTextResponse("only nodes are served here", status_code=403)
        if int(request.headers.get("content-length", LARGEST + 1)) > LARGEST:
            return PlainTextResponse("too large, or of unknown size", status_code=413)
        headers = [(k, v) for k, v in request.headers.raw if k.decode().lower() not in HOP_BY_HOP]
        question = client.build_request("POST", path, headers=headers, content=request.stream())
        try:
            answer = await client.send(question, stream=True)
        except httpx.TransportError:
            return PlainTextResponse("the SuperLink does not answer", status_code=503)
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose)
        )

    return Starlette(
        routes=[Route("/{path:path}", hand_on, methods=["GET", "POST", "PUT", "DELETE", "PATCH"])],
        lifespan=life,
    )


def main(host: str, port: str, superlink: str, ca: str, certificate: str, key: str) -> None:
    uvicorn.run(
        front(superlink, Path(ca)),
        host=host,
        port=int(port),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        access_log=False,
        limit_concurrency=256,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
