"""What the audit logs of a server and its sites say: who took part, what was sent, what came out.

Of a message, a log has the size and the SHA-256, and never the content. Both ends compute the same
SHA-256, so the log of a site can be compared with that of its server.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Message, RecordDict

from fedadb.deploy import refusals
from fedadb.deploy.audit_log import ANSWERED, ASKED, RECEIVED, REFUSED, SENT
from fedadb.deploy.messages import TABLE, VERSION, shown, tensor_bytes_in
from fedadb.experiment.stored import read_sites
from fedadb.storage.records import Record
from fedadb.storage.run_directory import MODEL, SITES

Audit = Callable[..., Any]  # takes an event and its fields


def size_and_digest(content: RecordDict) -> dict[str, Any]:
    """The bytes of a message's table and tensors, and their SHA-256, whatever the content is."""
    parts = [b"", b""]
    with suppress(Exception):
        parts[0] = str(content.config_records[TABLE]["json"]).encode()
    with suppress(Exception):
        parts[1] = tensor_bytes_in(content)
    digest = hashlib.sha256(b"%d " % len(parts[0]))  # so that the parts cannot be confused
    for part in parts:
        digest.update(part)
    return {"bytes": sum(map(len, parts)), "sha256": digest.hexdigest()}


class Question(NamedTuple):
    """A message that has not been answered."""

    site: str
    what: str
    asked: float  # when


@dataclass
class ServerAudit:
    """Writes what the server sends to its sites and receives from them."""

    write: Audit
    name_of: Mapping[int, str] = field(default_factory=dict)  # the site's name by node
    _open: dict[str, Question] = field(default_factory=dict)  # by message

    def sent(self, messages: Iterable[Message]) -> list[Question]:
        """Note messages before they are sent."""
        questions = []
        for message in messages:
            site = self.name_of.get(message.metadata.dst_node_id, "?")
            what = refusals.describe(message)
            self.write(SENT, site=site, what=what, **size_and_digest(message.content))
            questions.append(Question(site, what, time.monotonic()))
        return questions

    def expect(self, questions: Mapping[str, Question]) -> None:
        """Expect replies to messages that were sent, by the SuperLink's names of the messages."""
        self._open |= questions

    def received(self, message_id: str, reply: Message) -> None:
        """Note the reply to a message."""
        question = self._open.pop(message_id, None)
        if question is None:
            return
        fields: dict[str, Any] = {"site": question.site, "what": question.what}
        fields["seconds"] = round(time.monotonic() - question.asked, 3)
        if reply.has_error():
            _, sentence = refusals.parse(str(reply.error.reason))
            self.write(REFUSED, **fields, reason=shown(sentence))
        else:
            self.write(RECEIVED, **fields, **size_and_digest(reply.content))


@contextmanager
def audited_server(write: Audit, listen: str) -> Iterator[None]:
    """Note that the server starts, and that it ends in order."""
    write("started", version=VERSION, listen=listen)
    try:
        yield
    finally:
        write("ended")


@contextmanager
def audited_run(write: Audit, application: str, out: Path) -> Iterator[None]:
    """Note the beginning of a run, and its end: the digest of the model, or why there is none."""
    write("run", application=application, out=out.name)
    try:
        yield
    except SystemExit:  # after SIGTERM
        write("stopped", reason="by the operator")
        raise
    except BaseException as error:
        write("stopped", reason=shown(str(error) or type(error).__name__))
        raise
    write("finished", model=hashlib.sha256((out / MODEL).read_bytes()).hexdigest())


def audit_round(write: Audit, out: Path, record: Record) -> None:
    """Note a round: whose replies were used, and which were dropped for which reason."""
    names = read_sites(out / SITES)["names"]
    used = sorted(names[k] for k in record["clients"])
    write("round", round=record["round"], used=used, lost=record.get("lost", {}))


def audit_request(write: Audit, message: Message) -> None:
    """Note at a site what the server asks for."""
    write(ASKED, what=refusals.describe(message), **size_and_digest(message.content))


def audit_answer(write: Audit, message: Message, reply: Message) -> None:
    """Note at a site what it answers, before the answer leaves."""
    what = refusals.describe(message)
    if reply.has_error():
        _, sentence = refusals.parse(str(reply.error.reason))
        write(REFUSED, what=what, reason=shown(sentence))
    else:
        write(ANSWERED, what=what, **size_and_digest(reply.content))
