"""Sends messages to nodes and collects their replies."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

QUERY, TRAIN, EVALUATE = MessageType.QUERY, MessageType.TRAIN, MessageType.EVALUATE
POLL_SECONDS = 0.1  # between two requests for replies
MAX_REASON = 400  # characters
# Flower's error codes: the site's code raised, the message expired, the node is offline, its
# process ended.
RAISED, EXPIRED, OFFLINE, CRASHED = 2, 3, 5, 8


class NoReply(NamedTuple):
    """Why a node did not reply, in a few words."""

    reason: str


def send_and_wait(
    grid: Grid, contents: Mapping[int, RecordDict], kind: str, group: str, deadline: float
) -> dict[int, RecordDict | NoReply]:
    """Send each node its content, and wait for all replies or the deadline, in seconds."""
    messages = [
        Message(content, dst_node_id=node, message_type=kind, group_id=group, ttl=deadline)
        for node, content in contents.items()
    ]
    sent = list(zip(grid.push_messages(messages), contents, strict=True))
    node_of = {message_id: node for message_id, node in sent if message_id}
    late = NoReply(f"did not reply within {deadline:g} s")
    results: dict[int, RecordDict | NoReply] = {
        node: late if message_id else NoReply("is not connected") for message_id, node in sent
    }
    waiting, end = set(node_of), time.monotonic() + deadline
    while waiting and time.monotonic() < end:
        for reply in _pull(grid, waiting):
            # The SuperLink reports the errors of offline nodes in its own name, so only the
            # message that was replied to tells which node it is about.
            message_id = reply.metadata.reply_to_message_id
            waiting.discard(message_id)
            if not reply.has_error():
                results[node_of[message_id]] = reply.content
            elif reply.error.code != EXPIRED:
                results[node_of[message_id]] = NoReply(_printable(_reason(reply.error)))
        if waiting:
            time.sleep(POLL_SECONDS)
    return results


def _pull(grid: Grid, waiting: set[str]) -> Iterator[Message]:
    """The replies that have arrived, except those that cannot be read."""
    try:
        yield from list(grid.pull_messages(sorted(waiting)))
    except Exception:  # one bad reply must not cost the others
        for message_id in sorted(waiting):
            with suppress(Exception):
                yield from list(grid.pull_messages([message_id]))


def _printable(text: str) -> str:
    """The text without control characters: a site's text goes to terminals and records."""
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_REASON]


def _reason(error: Error) -> str:
    """The error in a few words; if it is one of ours, its own sentence."""
    reason = str(error.reason or "the site gave no reason")
    if error.code in (OFFLINE, CRASHED):
        return "disconnected"
    wrapped = re.fullmatch(r"<class '([\w.]+)'>:<'(.*)'>", reason, re.DOTALL)
    if error.code == RAISED and wrapped:
        kind, sentence = wrapped.groups()
        return sentence if kind.startswith("fedadb.") else f"{kind.rpartition('.')[2]}: {sentence}"
    return reason
