"""The audit logs: what a server and a site note, and how the two are compared."""

import hashlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedadb.core.errors import Fault
from fedadb.deploy import audit
from fedadb.deploy.audit import ServerAudit, audit_answer, audit_request, audited_run
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import SMALL, make_content, tensor_record
from fedadb.storage.hash_chain import append_entry, read_chain
from tests.command_line import invoke
from tests.deploy.fake_grid import FakeGrid, experiment, nodes, train


@pytest.fixture(autouse=True)
def identity() -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def question(text: str = "secret", node: int = 7, kind: str = "train") -> Message:
    content = make_content({"run": text}, tensor_record({"w": torch.arange(5)}))
    return Message(content, dst_node_id=node, message_type=kind, group_id="3")


def exchange(server: Path, site: Path, text: str = "reply") -> None:
    """A message from a server to a site and back, noted at both ends."""
    noted = ServerAudit(partial(append_entry, server), {7: "north"})
    message = question()
    message.metadata.__dict__["_message_id"] = "m"
    noted.expect({"m": noted.sent([message])[0]})
    reply = Message(make_content({"text": text}), reply_to=message)
    write = partial(append_entry, site)
    audit_request(write, message)
    audit_answer(write, message, reply)
    noted.received("m", reply)


def test_both_ends_note_the_same_digests_and_no_content(tmp_path: Path) -> None:
    server, site = tmp_path / "server.jsonl", tmp_path / "site.jsonl"
    exchange(server, site)
    sent, received = read_chain(server).entries
    asked, answered = read_chain(site).entries
    assert [sent["event"], received["event"]] == ["sent", "received"]
    assert [asked["event"], answered["event"]] == ["asked", "answered"]
    for one, other in ((sent, asked), (received, answered)):
        assert (one["sha256"], one["bytes"]) == (other["sha256"], other["bytes"])
        assert (one["site"], one["what"], other["what"]) == ("north", "round 3", "round 3")
    assert sent["sha256"] != received["sha256"]
    assert "secret" not in server.read_text() + site.read_text()


def test_the_digest_is_that_of_the_table_and_the_tensors() -> None:
    tensors = tensor_record({"w": torch.arange(SMALL // 4)})
    noted = audit.size_and_digest(make_content({"a": 1}, tensors))
    array: Any = tensors["safetensors"]
    table, data = json.dumps({"a": 1}).encode(), array.data
    expected = hashlib.sha256(b"%d " % len(table) + table + data).hexdigest()
    assert noted == {"bytes": len(table) + len(data), "sha256": expected}
    assert audit.size_and_digest(RecordDict())["bytes"] == 0


def test_a_refusal_is_noted_with_its_reason(tmp_path: Path) -> None:
    noted = ServerAudit(partial(append_entry, tmp_path / "s"), {7: "north"})
    message = question()
    noted.expect({"m": noted.sent([message])[0]})
    reason = "fedadb:not-allowed: round 9 of 3\x1b[2J"
    reply = Message(Error(2, reason), reply_to=message)
    noted.received("m", reply)
    audit_answer(partial(append_entry, tmp_path / "k"), message, reply)
    for path in ("s", "k"):
        last = read_chain(tmp_path / path).entries[-1]
        assert (last["event"], last["reason"]) == ("refused", "round 9 of 3 [2J")


def test_a_run_ends_with_the_digest_of_its_model_or_a_reason(tmp_path: Path) -> None:
    write, out = partial(append_entry, tmp_path / "a"), tmp_path / "run"
    with pytest.raises(Fault), audited_run(write, "abc", out):
        raise Fault("too few replies")
    out.mkdir()
    with audited_run(write, "abc", out):
        (out / "model.safetensors").write_bytes(b"model")
    entries = read_chain(tmp_path / "a").entries
    assert [e["event"] for e in entries] == ["run", "stopped", "run", "finished"]
    assert entries[1]["reason"] == "too few replies"
    assert entries[3]["model"] == hashlib.sha256(b"model").hexdigest()


@pytest.mark.usefixtures("clock")
def test_a_round_is_noted_with_the_sites_that_were_used_and_lost(tmp_path: Path) -> None:
    def silent(message: Message, context: Any) -> Message:
        if message.metadata.message_type == "train":
            raise TimeoutError
        return app(message, context)

    e, out = experiment(rounds=1, participation=1.0, deadline=5.0), tmp_path / "run"
    grid = FakeGrid(e.toml(), nodes({1: silent}))
    (record,) = train(e, out, grid)
    audit.audit_round(partial(append_entry, tmp_path / "a"), out, record)
    (entry,) = read_chain(tmp_path / "a").entries
    assert entry["round"] == 1
    assert entry["used"] == ["client-0", "client-2", "client-3"]
    assert entry["lost"] == {"client-1": "did not reply within 5 s"}


def test_the_command_verifies_a_log_and_compares_it_with_a_sites(tmp_path: Path) -> None:
    server, site = tmp_path / "audit.jsonl", tmp_path / "site.jsonl"
    exchange(server, site)
    head = read_chain(server).head
    exchange(server, site, "another")
    pair = f"north={site}"
    done = invoke("deploy", "audit", tmp_path, "--head", head, "--site", pair)
    assert done.code == 0, done.err
    text = " ".join(done.err.split() + done.out.split())
    assert "2 replies of north are in both logs." in text
    assert "that the server's log does not have" not in text
    assert "4 entries from" in text
    assert read_chain(server).head in text
    site.unlink()
    exchange(tmp_path / "other.jsonl", site)
    done = invoke("deploy", "audit", tmp_path, "--site", pair)
    assert (done.code, "entry 4 of the server's log" in " ".join(done.err.split())) == (1, True)
    server.write_text("".join(server.read_text().splitlines(keepends=True)[:1]))
    done = invoke("deploy", "audit", tmp_path, "--head", head)
    assert (done.code, "its end was cut off or replaced" in " ".join(done.err.split())) == (1, True)


def test_replies_that_are_only_in_the_sites_log_are_counted(tmp_path: Path) -> None:
    server, site = tmp_path / "audit.jsonl", tmp_path / "site.jsonl"
    exchange(server, site)
    exchange(tmp_path / "hidden.jsonl", site, "another")
    done = invoke("deploy", "audit", tmp_path, "--site", f"north={site}")
    text = " ".join(done.err.split() + done.out.split())
    assert done.code == 0, done.err
    assert "1 replies of north are in both logs." in text
    assert "north sent 1 that the server's log does not have" in text


def test_a_log_that_a_site_forged_is_one_sentence(tmp_path: Path) -> None:
    server, site = tmp_path / "audit.jsonl", tmp_path / "site.jsonl"
    exchange(server, tmp_path / "other.jsonl")
    append_entry(site, "answered")
    append_entry(site, "answered", sha256=[1])
    done = invoke("deploy", "audit", tmp_path, "--site", f"north={site}")
    assert (done.code, "the site's log does not have" in " ".join(done.err.split())) == (1, True)


def test_a_hash_that_was_shortened_is_refused(tmp_path: Path) -> None:
    append_entry(tmp_path / "audit.jsonl", "started")
    done = invoke("deploy", "audit", tmp_path, "--head", "3f2a")
    assert (done.code, "must be the whole hash" in " ".join(done.err.split())) == (2, True)


def test_the_command_needs_neither_flower_nor_torch(tmp_path: Path) -> None:
    """An auditor may have another machine."""
    append_entry(tmp_path / "audit.jsonl", "started")
    code = (
        "import sys; sys.modules |= dict.fromkeys(('flwr', 'torch', 'cryptography'))\n"
        f"sys.argv = ['fedadb', 'deploy', 'audit', {str(tmp_path)!r}]\n"
        "from fedadb.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, "unbroken" in " ".join(done.stdout.split())) == (0, True), done.stderr


def test_the_command_names_what_is_missing(tmp_path: Path) -> None:
    done = invoke("deploy", "audit", tmp_path)
    assert (done.code, "audit.jsonl does not exist" in " ".join(done.err.split())) == (2, True)
