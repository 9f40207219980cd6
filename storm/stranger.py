"""A running federation with a hostile site, while a stranger attacks the server's port."""

import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedadb.deploy import keys
from fedadb.deploy.ports import free_port
from fedadb.storage.records import read_records
from storm.federation import SERVER, Federation, experiment
from storm.hostile import absent, simulated_time
from storm.outcome import Outcome
from storm.traces import results
from tests.deploy.fake_grid import FakeGrid, FakeNode, train
from tests.deploy.scripted_site import SCRIPT

SITES, HOSTILE = 4, 3
ACTIONS = ("nan", "shape", "names", "raise")
OPEN = 150  # connections that the stranger leaves open
TARGETS = ("pull-messages", "push-messages", "push-object", "activate-node", "../control/start-run")
PROXY_SECONDS = 20.0  # for an answer to the stranger

Attack = Callable[[socket.socket, random.Random], None]


def _post(target: str, headers: str = "", body: bytes = b"") -> bytes:
    head = f"POST /v1/fleet/{target} HTTP/1.1\r\nhost: localhost\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _unsigned(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(_post(rng.choice(TARGETS), body=rng.randbytes(rng.randrange(2000))))
    connection.recv(4096)


def _forged(connection: socket.socket, rng: random.Random) -> None:
    headers = "flwr-public-key: AAAA\r\nflwr-signature: AAAA\r\nflwr-timestamp: 2020-01-01\r\n"
    connection.sendall(_post(rng.choice(TARGETS), headers, b"x"))
    connection.recv(4096)


def _garbage(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(rng.randbytes(rng.randrange(1, 5000)))
    connection.recv(4096)


def _half_a_request(connection: socket.socket, rng: random.Random) -> None:
    whole = _post(rng.choice(TARGETS), body=b"x" * 1000)
    connection.sendall(whole[: rng.randrange(1, len(whole))])


def _huge_length(connection: socket.socket, rng: random.Random) -> None:
    head = b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: a\r\ncontent-length: "
    connection.sendall(head + b"9" * rng.choice((9, 18, 400)) + b"\r\n\r\n" + b"x" * 4000)
    connection.recv(4096)


def _many_headers(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000)
    connection.recv(4096)


def _smuggled(connection: socket.socket, rng: random.Random) -> None:
    connection.sendall(
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nPOST /v1/control/start-run HTTP/1.1\r\n\r\n"
    )
    connection.recv(4096)


def _trickled(connection: socket.socket, rng: random.Random) -> None:
    for byte in _post("pull-messages")[:15]:
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


ATTACKS: dict[str, Attack] = {
    "unsigned request": _unsigned,
    "forged signature": _forged,
    "garbage": _garbage,
    "half a request": _half_a_request,
    "huge length": _huge_length,
    "many headers": _many_headers,
    "smuggled request": _smuggled,
    "trickled request": _trickled,
    "idle": lambda connection, rng: None,
}


class Stranger(threading.Thread):
    """Attacks a port until it is stopped; some connections stay open."""

    def __init__(self, port: int, ca: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.ended, self.counts = threading.Event(), dict.fromkeys((*ATTACKS, "without TLS"), 0)
        self._port, self._rng = port, random.Random(seed)
        self._context = ssl.create_default_context(cafile=str(ca))
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while not self.ended.is_set():
            with suppress(OSError):  # the proxy closes connections, as it should
                self._attack()
            while len(self._open) > OPEN:
                self._open.pop(0).close()

    def _attack(self) -> None:
        plain = socket.create_connection(("localhost", self._port), PROXY_SECONDS)
        self._open.append(plain)
        if self._rng.random() < 0.2:
            self.counts["without TLS"] += 1
            plain.sendall(self._rng.randbytes(50))
            return
        connection = self._context.wrap_socket(plain, server_hostname="localhost")
        self._open[-1] = connection
        name = self._rng.choice(list(ATTACKS))
        self.counts[name] += 1
        ATTACKS[name](connection, self._rng)


def storm_stranger(outcome: Outcome, scratch: Path, rounds: int) -> None:
    """Train with three honest sites and a hostile one under attack, and compare the end."""
    rng = random.Random(outcome.seed)
    e = experiment(SITES, rounds, min_replies=SITES - 1)
    hostile = f"site-{HOSTILE}"
    modules = {hostile: "tests.deploy.scripted_site"}
    federation = Federation(scratch / "federation", e, free_port(), modules=modules)
    federation.directory.mkdir()
    federation.prepare()
    script = {str(t): rng.choice(ACTIONS) for t in range(1, rounds + 1)}
    (federation.directory / hostile / SCRIPT).write_text(json.dumps(script))
    ca = federation.directory / SERVER / keys.CA
    strangers = [Stranger(federation.port, ca, outcome.seed + n) for n in range(2)]
    for name in federation.names:
        federation.start(name)
    try:
        for stranger in strangers:
            stranger.start()
        outcome.require(federation.wait(lambda: False), "the federation hangs")
    finally:
        for stranger in strangers:
            stranger.ended.set()
        federation.stop()
    for stranger in strangers:
        for name, times in stranger.counts.items():
            outcome.count(f"stranger: {name}", times)
    code, log = federation.running[SERVER].returncode, federation.log(SERVER)[-500:]
    outcome.require(code == 0, f"the server ends with {code}: {log}")
    lost = [
        list(record.get("lost", {})) for record in read_records(federation.out / "rounds.jsonl")
    ]
    outcome.require(lost == [[hostile]] * rounds, f"lost sites: {lost}")
    outcome.count("tricks of the hostile site", rounds)
    nodes = [FakeNode({"partition-id": k}) for k in range(SITES)]
    nodes[HOSTILE].handle = absent
    with simulated_time():
        train(e, scratch / "absent", FakeGrid(e.toml(), nodes))
    model = "model.safetensors"
    same = results(federation.out).get(model) == results(scratch / "absent")[model]
    outcome.require(same, "the model is not as if the hostile site had been absent")
    outcome.count("ends compared with the absent site's")
