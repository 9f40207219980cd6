"""Strangers and misbehaving sites attack the proxy, while a site works."""

import asyncio
import contextlib
import datetime as dt
import http.server
import logging
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import Message

from fedadb.deploy import keys
from fedadb.deploy.connections import Limits, network
from fedadb.deploy.node_requests import ACTIVATE, PULL
from fedadb.deploy.ports import free_port, is_open
from fedadb.deploy.proxy import LINES_PER_MINUTE, MAX_UPLOAD, LimitedLog, serve
from tests.deploy.federation import GUARD, ROOT, wait_for

PUSH = "/v1/fleet/push-object"
DELIVERED = PullMessagesResponse(messages_list=[Message()]).SerializeToString()


class SuperLink(http.server.ThreadingHTTPServer):
    """A stand-in that counts connections and notes requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / keys.SUPERLINK, directory / keys.SUPERLINK_KEY)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.connections = 0
        self.received: list[tuple[str, int]] = []  # path, bytes of the body
        self.answers: dict[str, bytes] = {}
        self.status = 200

    def process_request(self, *args: Any) -> None:
        self.connections += 1
        super().process_request(*args)

    def handle_error(self, *_: Any) -> None:
        """Write no traceback when the proxy closes a connection."""


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SuperLink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, len(body)))
        answer = self.server.answers.get(self.path, b"")
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@dataclass
class Site:
    """Signs and sends requests."""

    key: ec.EllipticCurvePrivateKey
    ca: Path
    port: int = 0

    def headers(self, age: float = 0) -> dict[str, str]:
        time = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)).isoformat()
        public = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        signature = self.key.sign(time.encode(), ec.ECDSA(hashes.SHA256()))
        return {
            "flwr-public-key": b64encode(public).decode(),
            "flwr-timestamp": time,
            "flwr-signature": b64encode(signature).decode(),
        }

    def post(self, path: str = PULL, body: bytes = b"", **headers: str) -> httpx.Response:
        context = ssl.create_default_context(cafile=str(self.ca))
        with httpx.Client(verify=context, timeout=GUARD, trust_env=False) as client:
            url = f"https://127.0.0.1:{self.port}{path}"
            return client.post(url, content=body, headers={**self.headers(), **headers})

    def head(self, length: int, path: str = PUSH) -> bytes:
        """A signed request without its body."""
        lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {length}"]
        lines += [f"{name}: {value}" for name, value in self.headers().items()]
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass
class Attacker:
    """Opens connections, and keeps them open."""

    ca: Path
    port: int
    sockets: list[socket.socket] = field(default_factory=list)

    def connect(self, address: str = "127.0.0.1", tls: bool = True) -> socket.socket:
        context = ssl.create_default_context(cafile=str(self.ca))
        raw = socket.create_connection(("127.0.0.1", self.port), GUARD, (address, 0))
        opened = context.wrap_socket(raw, server_hostname="127.0.0.1") if tls else raw
        self.sockets.append(opened)
        return opened

    def open(self, count: int, *addresses: str, tls: bool = True) -> None:
        for i in range(count):
            # The proxy may close the connection at any time.
            with contextlib.suppress(OSError):
                self.connect(addresses[i % len(addresses)], tls)

    def send(self, data: bytes) -> None:
        for opened in self.sockets:
            with contextlib.suppress(OSError):
                opened.sendall(data)

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()


def read_all(opened: socket.socket) -> bytes:
    """What the proxy sends until it closes the connection."""
    blocks = []
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while block := opened.recv(1 << 16):
            blocks.append(block)
    return b"".join(blocks)


@dataclass
class Scene:
    """A SuperLink, a registered site that works, and one that attacks."""

    directory: Path
    superlink: SuperLink
    good: Site
    bad: Site

    @contextmanager
    def proxy(self, limits: Limits | None = None, max_upload: int = MAX_UPLOAD) -> Iterator[Any]:
        """The proxy in a thread of its own; yields an attacker."""
        started, port = threading.Event(), free_port()
        self.good.port = self.bad.port = port
        loop: Any = None
        task: Any = None

        async def run() -> None:
            nonlocal loop, task
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            names = (keys.CA, keys.SERVER, keys.SERVER_KEY)
            superlink = f"127.0.0.1:{self.superlink.server_address[1]}"
            files = tuple(self.directory / name for name in names)
            with contextlib.suppress(asyncio.CancelledError):
                await serve(
                    ("127.0.0.1", port),
                    superlink,
                    files,  # type: ignore[arg-type]
                    self.directory / keys.SITES,
                    max_upload,
                    limits,
                    started.set,
                )

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        attacker = Attacker(self.directory / keys.CA, port)
        try:
            assert started.wait(GUARD)
            yield attacker
        finally:
            attacker.close()
            loop.call_soon_threadsafe(task.cancel)
            thread.join(GUARD)


def make_all_keys(root: Path, days: int = 2) -> Path:
    """The keys of a server and two sites."""
    keys.make_server_keys(root / "server", ["localhost"], days)
    for name in ("good", "bad"):
        keys.make_site_keys(root / name)
        public = (root / name / keys.SITE_PUBLIC).read_bytes()
        (root / "server" / keys.SITES / f"{name}.pub").write_bytes(public)
    return root


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_all_keys(tmp_path_factory.mktemp("proxy"))


@pytest.fixture
def scene(directory: Path) -> Iterator[Scene]:
    with open_scene(directory) as opened:
        yield opened


@contextmanager
def open_scene(directory: Path) -> Iterator[Scene]:
    """A running SuperLink, and the sites whose keys are in the directory."""
    server = directory / "server"

    def site(name: str) -> Site:
        key = load_ssh_private_key((directory / name / keys.SITE_KEY).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return Site(key, server / keys.CA)

    with SuperLink(server) as superlink:
        thread = threading.Thread(target=superlink.serve_forever, args=(0.05,))
        thread.start()
        yield Scene(server, superlink, site("good"), site("bad"))
        superlink.shutdown()
        thread.join(GUARD)


def test_requests_of_a_site_reach_the_superlink(scene: Scene) -> None:
    scene.superlink.answers[PUSH] = b"stored"
    with scene.proxy():
        response = scene.good.post(PUSH, b"x" * 5_300_000)
    assert (response.status_code, response.content) == (200, b"stored")
    assert scene.superlink.received == [(PUSH, 5_300_000)]


def test_half_sent_requests_of_strangers_are_refused_at_once(scene: Scene) -> None:
    with scene.proxy() as attacker:
        attacker.open(100, "127.0.0.1")
        attacker.send(f"POST {PUSH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nx".encode())
        assert scene.good.post().status_code == 200
        answers = [read_all(opened) for opened in attacker.sockets]
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.1 401", b""}
    assert b"HTTP/1.1 401" in {answer[:12] for answer in answers}
    assert scene.superlink.received == [(PULL, 0)]


def test_half_sent_bodies_of_a_site_open_nothing_and_are_cut_off(scene: Scene) -> None:
    with scene.proxy(Limits(grace=1.0)) as attacker:
        attacker.open(100, "127.0.0.1")
        attacker.send(scene.bad.head(1000) + b"x")
        assert scene.good.post().status_code == 200
        assert scene.superlink.connections == 1
        assert {read_all(opened) for opened in attacker.sockets} == {b""}


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("addresses", [1, 10])
def test_idle_connections_do_not_keep_sites_out(scene: Scene, addresses: int, tls: bool) -> None:
    many = [f"127.0.0.{2 + i}" for i in range(addresses)] if addresses > 1 else ["127.0.0.1"]
    # These deadlines cut nobody off.
    with scene.proxy(Limits(first_request=GUARD, handshake=GUARD, strangers=100)) as attacker:
        attacker.open(500 if addresses == 1 else 300, *many, tls=tls)
        assert scene.good.post().status_code == 200


def test_idle_connections_are_cut_off(scene: Scene) -> None:
    with scene.proxy(Limits(first_request=0.5, handshake=0.5)) as attacker:
        attacker.open(10, "127.0.0.1")
        attacker.open(10, "127.0.0.1", tls=False)
        assert {read_all(opened) for opened in attacker.sockets} == {b""}


def test_a_connection_of_a_site_is_cut_off_between_requests(scene: Scene) -> None:
    with scene.proxy(Limits(idle=0.5)) as attacker:
        opened = attacker.connect()
        opened.sendall(scene.bad.head(0))
        assert read_all(opened).startswith(b"HTTP/1.1 200")


def trickle(opened: socket.socket) -> None:
    """Send single bytes until the proxy closes the connection."""
    opened.settimeout(0.05)
    while True:
        try:
            opened.sendall(b"x")
            if not opened.recv(1 << 16):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def is_answered(site: Site) -> bool:
    """Whether the proxy answers; on a busy machine, short deadlines cut off everybody at times."""
    with contextlib.suppress(httpx.TransportError):
        return site.post().status_code == 200
    return False


@pytest.mark.parametrize("signed", [False, True])
def test_trickled_heads_and_bodies_are_cut_off(scene: Scene, signed: bool) -> None:
    with scene.proxy(Limits(first_request=1.0, grace=1.0)) as attacker:
        attacker.open(8, "127.0.0.1")
        for opened in attacker.sockets:
            # A stranger never ends the head, and a site never ends the body.
            with contextlib.suppress(OSError):
                opened.sendall(scene.bad.head(1 << 20) if signed else b"POST / HTTP/1.1\r\nx: ")
        threads = [threading.Thread(target=trickle, args=(s,)) for s in attacker.sockets]
        for thread in threads:
            thread.start()
        wait_for(lambda: is_answered(scene.good))
        for thread in threads:
            thread.join(GUARD)
            assert not thread.is_alive()


def test_a_client_that_does_not_read_is_cut_off_and_holds_no_connection_to_the_superlink(
    scene: Scene,
) -> None:
    scene.superlink.answers[PUSH] = b"x" * (32 << 20)
    with scene.proxy(Limits(grace=1.0)) as attacker, logged_lines() as lines:
        opened = attacker.connect()
        opened.sendall(scene.bad.head(0))
        wait_for(lambda: scene.superlink.received)
        assert scene.good.post().status_code == 200
        wait_for(lambda: any("bad: cut off" in line for line in lines))


@contextmanager
def logged_lines() -> Iterator[list[str]]:
    """The lines that the proxy logs."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage() + (record.exc_text or ""))

    handler = Collector()
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


def test_an_aborted_upload_writes_one_line(scene: Scene) -> None:
    with scene.proxy() as attacker, logged_lines() as lines:
        opened = attacker.connect()
        opened.sendall(scene.bad.head(1 << 20) + b"x" * 1000)
        opened.close()
        wait_for(lambda: any(line.startswith("bad: ") for line in lines))
        assert scene.good.post().status_code == 200
    (line,) = (line for line in lines if not line.startswith("the accepted sites are"))
    assert line.startswith("bad: ")
    assert len(line) < 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\n\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\nhost : y\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * (1 << 20) + b"\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz",
    ],
)
def test_malformed_and_foreign_requests_are_refused(scene: Scene, request_bytes: bytes) -> None:
    with scene.proxy() as attacker:
        opened = attacker.connect()
        with contextlib.suppress(OSError):
            opened.sendall(request_bytes)
        assert read_all(opened)[:10] in (b"HTTP/1.1 4", b"")
        assert scene.good.post().status_code == 200
    assert len(scene.superlink.received) == 1


def test_signed_bodies_without_a_length_are_refused(scene: Scene) -> None:
    head = scene.bad.head(5).replace(b"content-length: 5", b"transfer-encoding: chunked")
    with scene.proxy() as attacker:
        opened = attacker.connect()
        opened.sendall(head + b"1\r\nx\r\n0\r\n\r\n")
        assert read_all(opened).startswith(b"HTTP/1.1 411")
    assert scene.superlink.received == []


def without_key(site: Site) -> dict[str, str]:
    return {"flwr-public-key": "", "flwr-signature": ""}


def foreign(site: Site) -> dict[str, str]:
    return Site(ec.generate_private_key(ec.SECP384R1()), site.ca).headers()


def stolen_name(site: Site) -> dict[str, str]:
    return {**foreign(site), "flwr-public-key": site.headers()["flwr-public-key"]}


@pytest.mark.parametrize(
    "forge",
    [
        without_key,
        foreign,
        stolen_name,
        lambda site: site.headers(age=306),
        lambda site: site.headers(age=-30),
        lambda site: {"flwr-timestamp": "2026-01-01T00:00:00"},
        lambda site: {"flwr-timestamp": "yesterday"},
        lambda site: {"flwr-signature": "§".encode("latin-1").decode("latin-1")},
    ],
)
def test_requests_without_a_valid_signature_never_reach_the_superlink(
    scene: Scene, forge: Callable[[Site], dict[str, str]]
) -> None:
    with scene.proxy():
        headers = {k: v.encode("latin-1") for k, v in forge(scene.good).items()}
        response = scene.good.post(PUSH, b"x", **headers)  # type: ignore[arg-type]
        assert (response.status_code, response.headers["connection"]) == (401, "close")
    assert scene.superlink.connections == 0


def test_a_node_with_a_foreign_key_gets_the_answer_that_it_can_explain(scene: Scene) -> None:
    with scene.proxy():
        response = scene.good.post(ACTIVATE, b"x", **foreign(scene.good))
    assert (response.status_code, response.json()["code"]) == (412, 2004)
    assert scene.superlink.connections == 0


def test_a_body_that_is_too_large_is_refused_before_it_is_read(scene: Scene) -> None:
    with scene.proxy() as attacker:
        for path, length in ((PUSH, 16 << 20), (PULL, 1 << 20)):
            opened = attacker.connect()
            opened.sendall(scene.bad.head(length, path))
            assert read_all(opened).startswith(b"HTTP/1.1 413")
    assert scene.superlink.connections == 0


def test_a_site_uploads_a_limited_number_of_bytes_per_message(scene: Scene) -> None:
    def push(size: int) -> int:
        return scene.bad.post(PUSH, b"x" * size).status_code

    with scene.proxy(max_upload=1000):
        assert [push(600), push(600), push(400), push(1)] == [200, 413, 200, 413]
        assert scene.bad.post(PULL, b"x" * 100).status_code == 200  # delivers nothing
        assert push(1) == 413
        assert scene.good.post(PUSH, b"x" * 1000).status_code == 200  # another site
        scene.superlink.answers[PULL] = DELIVERED
        assert scene.bad.post(PULL, b"x" * 100).content == DELIVERED
        assert [push(1000), push(1)] == [200, 413]


def test_an_upload_that_the_superlink_did_not_get_does_not_count(scene: Scene) -> None:
    with scene.proxy(max_upload=1000) as attacker, logged_lines() as lines:
        scene.superlink.status = 503
        assert scene.bad.post(PUSH, b"x" * 1000).status_code == 503
        scene.superlink.status = 200
        opened = attacker.connect()
        opened.sendall(scene.bad.head(1000))
        opened.close()
        wait_for(lambda: any("bad: " in line for line in lines))
        assert scene.bad.post(PUSH, b"x" * 1000).status_code == 200


def test_a_superlink_that_does_not_respond_is_reported(scene: Scene) -> None:
    scene.superlink.server_close()
    with scene.proxy():
        assert scene.good.post().status_code == 503


def test_the_log_has_a_limited_number_of_lines_per_minute() -> None:
    now = 0.0
    log = LimitedLog(lambda: now)
    with logged_lines() as lines:
        for _ in range(1000):
            log("a\nline")
        assert lines == ["a line"] * LINES_PER_MINUTE
        now = 60.0
        log("another")
        assert lines[LINES_PER_MINUTE:] == [f"{1000 - LINES_PER_MINUTE} more lines", "another"]


def test_addresses_of_one_client_count_together() -> None:
    assert network("::ffff:203.0.113.7") == network("203.0.113.7") != network("203.0.113.8")
    assert network("2001:db8::1") == network("2001:db8::ffff:2") != network("2001:db8:0:1::1")


def peak_memory(pid: int) -> int:
    """In bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_large_bodies_of_a_site_take_little_memory(scene: Scene, tmp_path: Path) -> None:
    port = scene.good.port = scene.bad.port = free_port()
    files = [str(scene.directory / name) for name in (keys.CA, keys.SERVER, keys.SERVER_KEY)]
    superlink = f"127.0.0.1:{scene.superlink.server_address[1]}"
    words = [sys.executable, "-m", "fedadb.deploy.proxy", "127.0.0.1", str(port), superlink, *files]
    size, connections, limits = 8 << 20, 60, Limits()
    attacker = Attacker(scene.directory / keys.CA, port)
    with (tmp_path / "log").open("w") as log, subprocess.Popen(words, stderr=log) as proxy:
        try:
            wait_for(lambda: is_open("127.0.0.1", port))
            assert scene.good.post().status_code == 200
            before = peak_memory(proxy.pid)
            for _ in range(connections):
                attacker.connect().sendall(scene.bad.head(size))

            def hold(opened: socket.socket) -> None:
                with contextlib.suppress(OSError):
                    opened.sendall(b"x" * (size - 1))

            threads = [threading.Thread(target=hold, args=(s,)) for s in attacker.sockets]
            for thread in threads:
                thread.start()
            waiting = limits.per_site - limits.requests
            wait_for(lambda: sum(thread.is_alive() for thread in threads) <= waiting)
            assert scene.good.post().status_code == 200
            held = peak_memory(proxy.pid) - before
            proxy.send_signal(signal.SIGTERM)
            assert proxy.wait(GUARD) == 0
            for thread in threads:
                thread.join(GUARD)
        finally:
            proxy.kill()
            attacker.close()
    assert held < 2 * limits.requests * size < connections * size
    assert len((tmp_path / "log").read_text().splitlines()) <= LINES_PER_MINUTE


NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def nginx(scene: Scene, directory: Path) -> Iterator[Attacker]:
    """Debian's nginx with the documented configuration, and a shorter deadline for bodies."""
    port = free_port()
    text = (ROOT / "docs" / "proxy" / "nginx.conf").read_text()
    user = pwd.getpwuid(os.getuid()).pw_name
    for documented, used in {
        "user www-data;": f"user {user};" if os.getuid() == 0 else "",
        "/run/nginx.pid": "nginx.pid",
        "/var/log/nginx/error.log": "error.log",
        "http {": "http { client_body_temp_path body; proxy_temp_path responses;",
        "listen 8443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "127.0.0.1:9443": f"127.0.0.1:{scene.superlink.server_address[1]}",
        "/srv/federation/server": str(scene.directory),
        "client_body_timeout 10s;": "client_body_timeout 1s;",
    }.items():
        assert documented in text
        text = text.replace(documented, used)
    (directory / "nginx.conf").write_text(text)
    words = [str(NGINX), "-p", str(directory), "-e", "error.log", "-c", "nginx.conf"]
    attacker = Attacker(scene.directory / keys.CA, port)
    with subprocess.Popen([*words, "-g", "daemon off;"]) as process:
        try:
            wait_for(lambda: is_open("127.0.0.1", port) or process.poll() is not None)
            scene.good.port = port
            yield attacker
        finally:
            attacker.close()
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_the_documented_configuration_of_nginx(scene: Scene, tmp_path: Path) -> None:
    with nginx(scene, tmp_path) as attacker:
        scene.superlink.answers[PUSH] = b"stored"
        response = scene.good.post(PUSH, b"x" * 5_300_000)
        assert (response.status_code, response.content) == (200, b"stored")
        assert scene.superlink.received == [(PUSH, 5_300_000)]
        others = ["/v1/control/start-run", "/v1/fleet/%70ull-messages", f"{PULL}?x=1", "/health"]
        assert [scene.good.post(path).status_code for path in others] == [403] * len(others)
        assert scene.good.post(PUSH, b"x" * (9 << 20)).status_code == 413
        slow = attacker.connect()
        slow.sendall(scene.bad.head(1000) + b"x")
        assert read_all(slow) == b""  # the connection is reset, without a response
        assert len(scene.superlink.received) == 1
