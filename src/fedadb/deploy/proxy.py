"""A reverse proxy that publishes the nodes' API of a SuperLink, and nothing else.

A SuperLink has one port for all its APIs. The control and runtime APIs require no login, so anyone
who reaches the port can submit code to all sites. Therefore the SuperLink listens on 127.0.0.1
only, and this proxy, which has its own TLS, forwards the requests of nodes. Nodes sign them with
their keys.
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

NODES_API = re.compile(r"/v1/fleet/[a-z-]+")
# In bytes. The SuperLink reads a whole request before it checks the signature; Flower sends large
# messages in parts of 5 MB.
MAX_BODY = 16 << 20
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host",
              "proxy-authenticate", "proxy-authorization"}  # fmt: skip


def make_proxy(superlink: str, ca: Path) -> Starlette:
    """A web application that forwards requests of nodes to the SuperLink at that address."""
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=ssl.create_default_context(cafile=str(ca)),
        timeout=httpx.Timeout(300, connect=10),
        trust_env=False,  # the environment's proxies are for other machines
    )

    @asynccontextmanager
    async def close_client(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    async def forward(request: Request) -> Response:
        # The raw path: the SuperLink must not decode it into a path that was not checked here.
        path = request.scope["raw_path"].decode("ascii", "replace")
        if request.method != "POST" or not NODES_API.fullmatch(path) or request.url.query:
            return PlainTextResponse("only the API for nodes is published here", status_code=403)
        if int(request.headers.get("content-length", MAX_BODY + 1)) > MAX_BODY:
            reason = "the request is too large or has no content-length"
            return PlainTextResponse(reason, status_code=413)
        headers = [(k, v) for k, v in request.headers.raw if k.decode().lower() not in HOP_BY_HOP]
        forwarded = client.build_request("POST", path, headers=headers, content=request.stream())
        try:
            response = await client.send(forwarded, stream=True)
        except httpx.TransportError:
            return PlainTextResponse("the SuperLink does not respond", status_code=503)
        return StreamingResponse(
            response.aiter_raw(),
            response.status_code,
            {k: v for k, v in response.headers.items() if k.lower() not in HOP_BY_HOP},
            background=BackgroundTask(response.aclose),
        )

    return Starlette(
        routes=[Route("/{path:path}", forward, methods=["GET", "POST", "PUT", "DELETE", "PATCH"])],
        lifespan=close_client,
    )


def main(host: str, port: str, superlink: str, ca: str, certificate: str, key: str) -> None:
    uvicorn.run(
        make_proxy(superlink, Path(ca)),
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
