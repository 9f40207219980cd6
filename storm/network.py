"""A federation over a bad network: a server and three sites, each in a namespace of its own."""

import threading
import time
from pathlib import Path

from storm.federation import SERVER, Federation, experiment
from storm.outcome import Outcome
from storm.participants import SAME
from storm.relay import Link, NoNamespaces, Relay
from storm.traces import results

SITES, ROUNDS = 3, 6
DELAY, LOSS = 0.05, 0.02  # seconds one way, and the share of packets
PORT = 8443


def storm_network(outcome: Outcome, scratch: Path, cut: float) -> None:
    """Train over the network, cut one site off for so many seconds, and compare the end."""
    relay = Relay(1 + SITES, Link(DELAY, LOSS), outcome.seed)
    try:
        with relay:
            _train(outcome, relay, scratch, cut)
    except NoNamespaces as error:
        outcome.leave_out(f"the network: {error}")


def _train(outcome: Outcome, relay: Relay, scratch: Path, cut: float) -> None:
    def place(name: str) -> int:
        return 1 if name == SERVER else 2 + int(name.rpartition("-")[2])

    federation = Federation(
        scratch / "federation",
        experiment(SITES, ROUNDS),
        PORT,
        relay.address(1),
        prefix=lambda name: relay.inside(place(name)),
    )
    federation.directory.mkdir()
    federation.prepare()
    began = time.monotonic()
    for name in federation.names:
        federation.start(name)
    try:
        outcome.require(federation.wait(lambda: federation.rounds() >= 2), "no round is trained")
        relay.link.cut.add(place("site-1"))
        outcome.count("cuts")
        heal = threading.Timer(cut, lambda: relay.link.cut.clear())
        heal.start()
        ended = federation.wait(lambda: False)
        heal.cancel()
        outcome.require(ended, "the run hangs")
    finally:
        federation.stop()
    code = federation.running[SERVER].returncode
    log = federation.log(SERVER)[-400:]
    outcome.require(code == 0, f"the server ends with {code}: {log}")
    outcome.measured |= {
        "delay one way, s": relay.link.delay,
        "loss": relay.link.loss,
        "cut of a site, s": cut,
        "packets passed": relay.passed,
        "packets lost": relay.lost,
        "s of the run": round(time.monotonic() - began, 1),
    }
    expected, found = federation.expected(), results(federation.out)
    for file in SAME:
        outcome.require(found.get(file) == expected[file], f"another {file} than in a simulation")
    outcome.count("ends compared with a simulation")
