"""What monitoring programs see of a server: counts, seconds and bytes; nothing about one site."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from fedadb.deploy import keys
from fedadb.deploy.accepted_sites import CONNECTED, accepted_keys
from fedadb.deploy.certificates import end_of
from fedadb.deploy.delivery import NOT_CONNECTED
from fedadb.deploy.server_app import FINISHED, STOPPED, read_status
from fedadb.experiment.config import Experiment
from fedadb.storage.records import Record, read_records
from fedadb.storage.run_directory import ROUNDS

STATES = ("starting", "waiting", "training", "finished", "stopped")


class Watched(NamedTuple):
    """A server and its run."""

    directory: Path  # of the server
    out: Path  # of the run
    experiment: Experiment


class Metric(NamedTuple):
    """A metric in the form of Prometheus."""

    name: str
    kind: str  # "gauge" or "counter"
    help: str
    values: dict[str, float]  # by label; "" if there is none


def state(watched: Watched) -> str:
    """What the run does at the moment, in one word of STATES."""
    status = read_status(watched.out)
    if status.startswith(tuple(STOPPED)):
        return "stopped"
    if status == FINISHED:
        return "finished"
    if not status:
        return "starting"
    return "training" if status.startswith("round ") else "waiting"


def health(watched: Watched) -> tuple[bool, str]:
    """Whether the run goes on or is finished, and a JSON text that says more."""
    now, rounds = state(watched), read_records(watched.out / ROUNDS)
    table = {"state": now, "round": len(rounds), "rounds": watched.experiment.rounds}
    return now != "stopped", json.dumps(table)


def metrics_text(watched: Watched) -> str:
    """All metrics, as Prometheus reads them."""
    lines = []
    for name, kind, text, values in _metrics(watched):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{label} {value:.17g}" for label, value in values.items()]
    return "\n".join(lines) + "\n"


def _metrics(watched: Watched) -> Iterator[Metric]:
    rounds = watched.out / ROUNDS
    records = read_records(rounds)
    yield _one("info", "gauge", "The version of fedadb.", 1, f'{{version="{version("fedadb")}"}}')
    states = {f'{{state="{name}"}}': float(name == state(watched)) for name in STATES}
    yield Metric("fedadb_run_state", "gauge", "What the run does at the moment.", states)
    yield _one("rounds_planned", "gauge", "The experiment's rounds.", watched.experiment.rounds)
    yield _one("rounds_finished", "gauge", "The rounds that are finished.", len(records))
    yield from _sites(watched)
    yield from _totals(records)
    if records:
        last = records[-1]
        if last["seconds"] is not None:
            yield _one("last_round_seconds", "gauge", "How long it took.", last["seconds"])
        ended = rounds.stat().st_mtime
        yield _one("last_round_timestamp_seconds", "gauge", "When it ended.", ended)
        yield _one("accuracy", "gauge", "The test accuracy after it.", last["accuracy"])
    ends = {
        f'{{certificate="{what}"}}': end_of((watched.directory / name).read_bytes()).timestamp()
        for what, name in (("server", keys.SERVER), ("authority", keys.CA))
    }
    yield Metric(
        "fedadb_certificate_end_timestamp_seconds", "gauge", "When a certificate ends.", ends
    )


def _sites(watched: Watched) -> Iterator[Metric]:
    accepted = len(accepted_keys(watched.directory))
    file = watched.directory / CONNECTED
    connected = int(file.read_text()) if file.exists() else 0
    needed = watched.experiment.federation.clients
    yield _one("sites_needed", "gauge", "The sites of the experiment.", needed)
    yield _one("sites_accepted", "gauge", "The sites whose keys the server has.", accepted)
    yield _one("sites_connected", "gauge", "The accepted sites that are connected.", connected)


def _totals(records: list[Record]) -> Iterator[Metric]:
    """Sums over the finished rounds of the run; none of a private run, whose records hide them."""
    if any(record["seconds"] is None for record in records):
        return
    used = [len(record["clients"]) for record in records]
    reasons = [list(record.get("lost", {}).values()) for record in records]
    lost = list(map(len, reasons))
    asked = [n + len(r) - r.count(NOT_CONNECTED) for n, r in zip(used, reasons, strict=True)]
    sent = sum(n * r["bytes_down"] for n, r in zip(asked, records, strict=True))
    received = sum(n * r["bytes_up"] for n, r in zip(used, records, strict=True))
    seconds = sum(record["seconds"] for record in records)
    yield _one("replies_used_total", "counter", "Replies that entered the model.", sum(used))
    yield _one("replies_lost_total", "counter", "Replies that were missing or bad.", sum(lost))
    yield _one("sent_bytes_total", "counter", "Bytes of tensors to sites, once per round.", sent)
    yield _one("received_bytes_total", "counter", "Bytes of the replies that were used.", received)
    yield _one("round_seconds_total", "counter", "The seconds of all rounds.", seconds)


def _one(name: str, kind: str, text: str, value: float, label: str = "") -> Metric:
    return Metric(f"fedadb_{name}", kind, text, {label: value})
