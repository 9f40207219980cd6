"""What the participants of a federation send and store."""

import datetime as dt
import hashlib
import json
import tempfile
from base64 import b64encode
from contextlib import suppress
from functools import cache
from pathlib import Path

import safetensors.torch
import torch
from flwr.app import ConfigRecord, RecordDict
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

from fedadb.core.errors import Fault
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector, Weights
from fedadb.deploy import accepted_sites, keys, node_requests, refusals, site_keys
from fedadb.deploy.audit_log import compare_answers
from fedadb.deploy.messages import request_in, table_in, tensors_from_bytes
from fedadb.deploy.participants import _read_introduction
from fedadb.deploy.reply_checks import check_counts, check_reply
from fedadb.deploy.site_rules import _read_asked
from fedadb.experiment.stored import read_sites
from fedadb.storage import hash_chain
from storm.readers.reader import Reader, in_file

ROSTER = json.dumps(
    {
        "run": "abc", "names": ["north", "south"], "rows": [10, 20],
        "data": {"classes": ["a", "b"], "shape": [1, 28, 28],
                 "transform": {"mean": [0.5], "std": [0.5]}},
    }
).encode()  # fmt: skip
ASKED = b'{"experiment": "e", "data": "d", "client": 0, "rounds": {"1": 2}, "evaluations": 3}'
REQUEST = json.dumps(
    {
        "run": "0123456789abcdef", "client": 1, "last_used": 0, "round": [1, 5, 4, 80, 1.0],
        "settings": {"rounds": 5}, "data": {"classes": ["a"]}, "version": "0.1.0",
    }
).encode()  # fmt: skip
INTRODUCTION = b'{"site": "north", "partition": -1, "rows": 120}'
COUNTS = b'{"loss": 1.5, "correct": [1, 2, 0], "rows": [3, 2, 1]}'
W = Vector.of({"a": torch.zeros(2, 3), "b": torch.zeros(4)})
EXAMPLE = Reply(Weights(W), torch.tensor(1))


def _content(data: bytes) -> RecordDict:
    return RecordDict({"table": ConfigRecord({"json": data.decode(errors="surrogateescape")})})


def _read_request(data: bytes, directory: Path) -> None:
    request_in(_content(data))


def _read_introduced(data: bytes, directory: Path) -> None:
    try:
        _read_introduction(table_in(_content(data)), "", hidden_rows=False)
    except (KeyError, ValueError) as error:  # as the server does
        raise Fault(str(error)) from error


def _read_counts(data: bytes, directory: Path) -> None:
    check_counts(table_in(_content(data)), 3)


def _reply() -> bytes:
    tensors = {"upload/w/a": torch.zeros(2, 3), "upload/w/b": torch.zeros(4)}
    more = {"examples": torch.tensor(7), "measured/tau": torch.tensor(1.0)}
    return safetensors.torch.save(tensors | more)


def _read_reply(data: bytes, directory: Path) -> None:
    check_reply(tensors_from_bytes(data), W, 7, EXAMPLE, ("tau",))


def _read_refusal(data: bytes, directory: Path) -> None:
    refusals.parse(data.decode(errors="surrogateescape"))


@cache
def _keys() -> node_requests.Keys:
    """The key of one site, as the proxy knows it."""
    with tempfile.TemporaryDirectory() as directory:
        keys.make_site_keys(Path(directory))
        return node_requests.read_keys(Path(directory))


def _headers() -> bytes:
    (key,) = _keys()
    now = dt.datetime.now(dt.UTC).isoformat().encode()
    lines = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(key),
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(bytes(70)),
        TIMESTAMP_HEADER: now,
    }
    return b"\n".join(name.encode() + b": " + value for name, value in lines.items())


def _read_headers(data: bytes, directory: Path) -> None:
    lines = [line.partition(b": ") for line in data.split(b"\n")]
    headers = {k.decode("latin-1"): v.decode("latin-1") for k, _, v in lines}
    node_requests.has_foreign_key(headers, _keys())
    assert node_requests.signer(headers, _keys(), dt.datetime.now(dt.UTC)) is None


def _read_registered(data: bytes, directory: Path) -> None:
    (directory / accepted_sites.REGISTERED).write_bytes(data)
    accepted_sites.registered_keys(directory)


@cache
def _key_file(name: str) -> bytes:
    """A file that `fedadb deploy keys` makes."""
    with tempfile.TemporaryDirectory() as directory:
        keys.make_site_keys(Path(directory))
        keys.make_server_keys(Path(directory) / "server", ["localhost"], days=2)
        found = Path(directory) / name
        return (found if found.exists() else Path(directory) / "server" / name).read_bytes()


ED25519 = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7aDgmJO3mf0p5sR4zMgoHxXcrwmtBYr0M2zWb8mQ9e name\n"


def _read_public_key(data: bytes, directory: Path) -> None:
    in_file("site.pub", site_keys.read_public_key)(data, directory)
    node_requests.read_keys(directory)


def _read_certificate(path: Path) -> None:
    keys.require_valid(path, "a certificate")


AUDIT_LOG = b"\n".join(
    json.dumps(entry).encode()
    for entry in (
        {"time": "2026-11-18T01:00:00+00:00", "event": "received", "site": "north", "sha256": "a"},
        {
            "time": "2026-11-18T01:00:01+00:00",
            "event": "answered",
            "what": "round 1",
            "sha256": "a",
        },
    )
)


def _read_audit_log(data: bytes, directory: Path) -> None:
    """As a forger would: whatever the entries are, their hashes are right."""
    lines, head = [], hash_chain.START
    for number, line in enumerate(data.split(b"\n"), start=1):
        with suppress(ValueError, TypeError, RecursionError):
            entry = {**json.loads(line), "entry": number, "previous": head}
            head = hashlib.sha256(json.dumps(entry).encode() + b"\n").hexdigest()
            line = json.dumps({**entry, "hash": head}).encode()
        lines.append(line + b"\n")
    path = directory / "audit.jsonl"
    path.write_bytes(b"".join(lines))
    chain = hash_chain.read_chain(path)
    compare_answers(chain, chain, "north")


READERS = {
    "roster (sites.json)": Reader(in_file("sites.json", read_sites), [ROSTER], 2.0),
    "roster (registered.json)": Reader(_read_registered, [b'{"north": "ssh-ecdsa AAAA"}']),
    "public key of a site": Reader(_read_public_key, [_key_file(keys.SITE_PUBLIC), ED25519]),
    "private key of a site": Reader(
        in_file("site.key", site_keys.read_private_key), [_key_file(keys.SITE_KEY)]
    ),
    "certificate": Reader(in_file("ca.crt", _read_certificate), [_key_file(keys.CA)]),
    "audit log": Reader(_read_audit_log, [AUDIT_LOG], 2.0),
    "site's counts of requests": Reader(in_file("asked.json", _read_asked), [ASKED]),
    "wire: request": Reader(_read_request, [REQUEST], 4.0),
    "wire: introduction": Reader(_read_introduced, [INTRODUCTION], 4.0),
    "wire: evaluation": Reader(_read_counts, [COUNTS], 4.0),
    "wire: reply": Reader(_read_reply, [_reply()], 4.0),
    "wire: refusal": Reader(_read_refusal, [b"fedadb:no-data: the site has no images"], 2.0),
    "wire: signed headers": Reader(_read_headers, [_headers()]),
}
