"""Messages to nodes and what becomes of each: an answer, or in words why there is none."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

QUERY, TRAIN, EVALUATE = MessageType.QUERY, MessageType.TRAIN, MessageType.EVALUATE
POLL = 0.1  # seconds between looks for answers
LONGEST = 400  # characters of a reason
RAISED, EXPIRED, GONE, CRASHED = 2, 3, 5, 8  # Flower's codes: of a site's own error, and others


def exchange(
    grid: Grid, contents: Mapping[int, RecordDict], kind: str, group: str, deadline: float
) -> dict[int, RecordDict | str]:
    """Send each node its content, and wait for all answers or the deadline."""
    messages = [
        Message(records, dst_node_id=node, message_type=kind, group_id=group, ttl=deadline)
        for node, records in contents.items()
    ]
    pushed = list(zip(grid.push_messages(messages), contents, strict=True))
    node_of = {identity: node for identity, node in pushed if identity}
    came: dict[int, RecordDict | str] = {
        node: _late(deadline) if identity else "is not connected" for identity, node in pushed
    }
    waiting, end = set(node_of), time.monotonic() + deadline
    while waiting and time.monotonic() < end:
        # A dead node's error comes from the server: whose it is, only the question tells.
        for answer in _pull(grid, waiting):
            asked = answer.metadata.reply_to_message_id
            waiting.discard(asked)
            if answer.has_error():
                came[node_of[asked]] = _plain(_reason(answer.error, deadline))
            else:
                came[node_of[asked]] = answer.content
        if waiting:
            time.sleep(POLL)
    return came


def _pull(grid: Grid, waiting: set[str]) -> Iterator[Message]:
    """The answers that are there; one that cannot be read is not to cost the others."""
    try:
        yield from list(grid.pull_messages(sorted(waiting)))
    except Exception:
        for asked in sorted(waiting):
            with contextlib.suppress(Exception):
                yield from list(grid.pull_messages([asked]))


def _plain(said: str) -> str:
    """What comes from afar, fit for a terminal and a record."""
    return "".join(c if c.isprintable() else " " for c in said)[:LONGEST]


def _late(deadline: float) -> str:
    return f"did not answer within {deadline:g} s"


def _reason(error: Error, deadline: float) -> str:
    """What happened, in a few words; of a site's own error, its sentence."""
    said = str(error.reason or "no reason was given")
    if error.code == EXPIRED:
        return _late(deadline)
    if error.code in (GONE, CRASHED):
        return "was there and is no more"
    if error.code == RAISED:
        wrapped = re.fullmatch(r"<class '([\w.]+)'>:<'(.*)'>", said, re.DOTALL)
        if wrapped:
            kind, sentence = wrapped.groups()
            ours = kind.startswith("fedadb.")
            return sentence if ours else f"{kind.rpartition('.')[2]}: {sentence}"
    return said
