"""What secure aggregation, differential privacy and audit logs read."""

import json
import tempfile
from functools import cache
from pathlib import Path

import safetensors.torch
import torch
from flwr.app import ConfigRecord, RecordDict

from fedadb.deploy import keys
from fedadb.deploy.all_sites import masked_words
from fedadb.deploy.key_exchange import _offer
from fedadb.deploy.key_offers import make_offer, verified_keys
from fedadb.deploy.messages import bytes_record, make_content, table_in
from fedadb.deploy.roster import ROSTER, Roster, read_roster
from fedadb.deploy.secret_random import LOG, open_secrets
from fedadb.deploy.secure_site import MASKED
from fedadb.experiment.settings import Federation
from fedadb.secagg.keys import make_private_key, public_key
from fedadb.storage.hash_chain import append_entry, read_chain
from storm.readers.reader import Reader, in_file

RUN, SETTINGS, WORDS = "00112233445566778899aabbccddeeff", "0" * 64, 5
NAMES = ("east", "north", "south")
NOTES = b'{"round": 1}\n{"round": 1, "asked": [0, 3]}\n{"round": 1, "used": [3]}\n'


def _log() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "audit.jsonl"
        for event in ("started", "sent", "received"):
            append_entry(path, event, site="north", round=1)
        return path.read_bytes()


def _append(path: Path) -> None:
    append_entry(path, "started")


def _read_notes(data: bytes, directory: Path) -> None:
    (directory / LOG).write_bytes(data)
    open_secrets(directory, Federation(10, 0.5), 1).used(1)


def _content(data: bytes) -> RecordDict:
    return RecordDict({"table": ConfigRecord({"json": data.decode(errors="surrogateescape")})})


def _read_offer(data: bytes, directory: Path) -> None:
    _offer(_content(data))


@cache
def _roster() -> tuple[Roster, bytes]:
    """What a site knows of three, and the keys that the server passes on."""
    with tempfile.TemporaryDirectory(prefix="storm-roster-") as made:
        directory = Path(made)
        for name in NAMES:
            keys.make_site_keys(directory / name)
        for name in NAMES:
            (directory / name / ROSTER).mkdir()
            for other in NAMES:
                public = (directory / other / keys.SITE_PUBLIC).read_bytes()
                (directory / name / ROSTER / f"{other}.pub").write_bytes(public)
        rosters = {name: read_roster(directory / name) for name in NAMES}
    offers = {
        name: make_offer(public_key(make_private_key()), known, RUN, SETTINGS).model_dump()
        for name, known in rosters.items()
    }
    return rosters["north"], json.dumps(offers).encode()


def _read_keys(data: bytes, directory: Path) -> None:
    verified_keys(table_in(_content(data)), _roster()[0], RUN, SETTINGS)


def _masked() -> bytes:
    return safetensors.torch.save({MASKED: torch.zeros(WORDS, dtype=torch.uint32)})


def _read_masked(data: bytes, directory: Path) -> None:
    masked_words(make_content({}, bytes_record(data)), WORDS)


READERS = {
    "audit log": Reader(in_file("audit.jsonl", read_chain), [_log()]),
    "audit log that goes on": Reader(in_file("audit.jsonl", _append), [_log()], 0.3),
    "notes of a private run": Reader(_read_notes, [NOTES]),
    "wire: key of a run": Reader(
        _read_offer, [b'{"key": "00ff", "signature": "0123456789abcdef"}'], 2.0
    ),
    "wire: keys of all sites": Reader(_read_keys, [_roster()[1]]),
    "wire: masked reply": Reader(_read_masked, [_masked()], 2.0),
}
