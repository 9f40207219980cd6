"""Sends messages to nodes and collects their replies.

A pull of Flower's claims every reply that it asks for, and then blocks until all parts of all of
them have arrived. So each reply is pulled by itself, in a thread: a site that withholds a part of
its reply delays no other site's.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter
from typing import Any, NamedTuple

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from fedadb.deploy import refusals
from fedadb.deploy.messages import shown

# Between two pulls of a reply: the first; or, of the time since the request, this share, up to the
# last. The SuperLink spends milliseconds on each, for hours if sites train for hours.
POLL_SECONDS, POLL_SHARE, MAX_POLL_SECONDS = 0.1, 0.02, 2.0
PULLS_PER_SECOND = 20  # of all replies together
NODES_SECONDS = 2.0  # between two looks at which nodes are connected
PULL_SECONDS = 0.1  # to wait for a pull before the other replies are looked at again
MAX_MESSAGES = 4  # to one node, which is asked again whenever it reconnects
# Flower's error codes: the message or a part of the reply is not there, the node is offline, the
# application is not the site's, the site's process ended.
EXPIRED, OFFLINE, OTHER_APPLICATION, CRASHED = 3, 5, 7, 8
NOT_CONNECTED = "is not connected"  # the reason of a site to which nothing was sent
FINAL_ERRORS = ("BadInput", "Refusal")  # of this package: waiting does not help


class NoReply(NamedTuple):
    """Why a node did not reply, in a few words."""

    reason: str
    final: bool = False  # the reason does not go away by itself
    code: str = ""  # of the site's refusal


class DeliveryState(NamedTuple):
    """Which nodes have replied so far."""

    seconds: Mapping[int, float]  # after which a node replied or reported an error
    failed: frozenset[int]  # those of them that reported an error
    connected: Mapping[int, bool]  # for each node that has not replied


def send_and_wait(
    grid: Grid,
    contents: Mapping[int, RecordDict],
    kind: str,
    group: str,
    deadline: float,
    reconnect: float = 0.0,
    on_change: Callable[[DeliveryState], None] = lambda replies: None,
) -> dict[int, RecordDict | NoReply]:
    """Send each node its content, and wait for all replies or the deadline.

    A reply that is complete before the deadline is returned. A node that disconnects and
    reconnects is sent its content again.

    Args:
        grid: Flower's connection to the nodes.
        contents: The content for each node.
        kind: The type of the messages.
        group: The group of the messages: the round, if they belong to one.
        deadline: Seconds to wait for a reply.
        reconnect: Seconds to wait for a node that has disconnected.
        on_change: Called whenever a node replies, disconnects or reconnects.
    """
    # What arrives before the deadline is pulled after it, so the messages stay valid that long.
    last_pull = max(5.0, deadline / 20)
    sender = _Sender(grid, kind, group, deadline + 2 * last_pull + 60)
    began = time.monotonic()
    requests = {node: _Request(node, content) for node, content in contents.items()}
    sender.send(list(requests.values()))
    looked, before = began, None
    while True:
        now = time.monotonic()
        is_last = now >= began + deadline
        if now >= looked + NODES_SECONDS and not is_last:
            looked = now
            sender.send_again(requests.values(), now)
        _pull(grid, requests.values(), last_pull if is_last else PULL_SECONDS, is_last)
        for request in requests.values():
            request.collect(now)
        state = _state(requests, began)
        if state != before:
            before = state
            on_change(state)
        waiting = [r for r in requests.values() if not r.is_settled(now, reconnect)]
        if is_last or not waiting:
            break
        time.sleep(_pause(now - began, len(waiting), deadline))
    return {node: request.outcome(deadline) for node, request in requests.items()}


@dataclass
class _Request:
    """A message to one node, and what has become of it."""

    node: int
    content: RecordDict
    message_id: str = ""
    messages: int = 0  # sent so far
    name: str = ""  # by which the grid knows the site, if it has a key
    activated: str = ""  # when the node had last connected as the message was sent
    pull: "_Pull | None" = None  # the one that is under way
    left: float | None = None  # when the node disconnected
    replied: float | None = None  # when it replied
    problem: str = ""  # why its last reply could not be pulled
    result: RecordDict | NoReply | None = None

    def collect(self, now: float) -> None:
        """Read the reply, if it has been pulled."""
        if self.pull is None or not self.pull.done.is_set():
            return
        pull, self.pull = self.pull, None
        try:
            # The SuperLink knows which message this is a reply to. What the reply itself says
            # about that comes from the site, and is not used.
            if pull.error:
                raise pull.error
            if pull.replies:
                self._read(pull.replies[0], now)
            else:
                self.problem = ""
        except Exception as error:  # whatever a site sends must not stop the others
            # The SuperLink may have failed instead, so the reply is pulled again. If it was
            # damaged, the SuperLink then says that it is not there.
            self.problem = f"its reply cannot be read: {type(error).__name__}"
        if self.result is not None:
            self.replied = now

    def _read(self, reply: Message, now: float) -> None:
        if not reply.has_error():
            self.result = reply.content
        elif reply.error.code == EXPIRED:
            self.result = NoReply(self.problem or "its reply is not complete")
        elif reply.error.code == OFFLINE and self.messages < MAX_MESSAGES:
            self.left = now
        else:
            self.result = _explain(reply.error)

    def is_settled(self, now: float, reconnect: float) -> bool:
        gone = self.left is not None and now >= self.left + reconnect
        return self.result is not None or gone

    def outcome(self, deadline: float) -> RecordDict | NoReply:
        if self.result is not None:
            return self.result
        if self.left is not None:
            return NoReply("disconnected")
        if self.pull is not None:
            return NoReply(f"did not complete its reply within {deadline:g} s")
        return NoReply(self.problem or f"did not reply within {deadline:g} s")


class _Pull:
    """One request for one reply, in a thread of its own, because it may block for minutes."""

    def __init__(self, grid: Grid, message_id: str) -> None:
        self.replies: list[Message] = []
        self.error: Exception | None = None
        self.done = Event()
        # A daemon, so that a withheld reply does not keep the process alive.
        Thread(target=self._run, args=(grid, message_id), daemon=True).start()

    def _run(self, grid: Grid, message_id: str) -> None:
        try:
            self.replies = list(grid.pull_messages([message_id]))
        except Exception as error:
            self.error = error
        finally:
            self.done.set()


class _Sender(NamedTuple):
    """Sends the messages of one group."""

    grid: Grid
    kind: str
    group: str
    ttl: float  # seconds

    def send(self, requests: Sequence["_Request"]) -> None:
        """Send each node its content."""
        connected = self._connected()
        messages = [
            Message(
                request.content,
                dst_node_id=request.node,
                message_type=self.kind,
                group_id=self.group,
                ttl=self.ttl,
            )
            for request in requests
        ]
        message_ids = list(self.grid.push_messages(messages)) if messages else []
        for message_id, request in zip(message_ids, requests, strict=True):
            request.message_id = message_id or ""
            request.messages += 1
            request.left = request.pull = None
            if info := connected.get(request.node):
                request.name, request.activated = info.name, info.last_activated_at
            if not message_id:
                request.result = NoReply(NOT_CONNECTED)

    def send_again(self, requests: Iterable["_Request"], now: float) -> None:
        """Send the content again to nodes that have reconnected, and note which are gone.

        A process that was killed and started again does not receive its message a second time,
        even if the SuperLink did not notice that it was gone.
        """
        connected = self._connected()
        node_of = {info.name: node for node, info in connected.items() if info.name}
        returned = []
        for request in requests:
            if request.result is not None:
                continue
            if request.node not in connected:  # it may be back as another node
                request.node = node_of.get(request.name, request.node)
            info = connected.get(request.node)
            if info is None:
                request.left = now if request.left is None else request.left
            elif request.left is not None or info.last_activated_at != request.activated:
                if request.messages < MAX_MESSAGES:
                    returned.append(request)
                else:
                    request.result = NoReply("disconnected too often")
        if returned:
            self.send(returned)

    def _connected(self) -> dict[int, Any]:
        return {info.node_id: info for info in self.grid.get_nodes()}


def _pause(passed: float, waiting: int, deadline: float) -> float:
    """Seconds until so many replies are pulled again, or until the deadline."""
    share = min(passed * POLL_SHARE, MAX_POLL_SECONDS)
    pause = max(POLL_SECONDS, waiting / PULLS_PER_SECOND, share)
    return min(pause, max(deadline - passed, POLL_SECONDS))


def _pull(grid: Grid, requests: Iterable[_Request], seconds: float, is_last: bool) -> None:
    """Pull replies, and wait so long for the pulls that this starts; at last, for all."""
    pulls = []
    for request in requests:
        if request.result is not None or request.left is not None:
            continue
        if request.pull is None:
            request.pull = _Pull(grid, request.message_id)
            pulls.append(request.pull)
        elif is_last:
            pulls.append(request.pull)
    end = perf_counter() + seconds
    for pull in pulls:
        pull.done.wait(max(0.0, end - perf_counter()))


def _state(requests: Mapping[int, _Request], began: float) -> DeliveryState:
    return DeliveryState(
        {n: r.replied - began for n, r in requests.items() if r.replied is not None},
        frozenset(n for n, r in requests.items() if isinstance(r.result, NoReply)),
        {n: r.left is None for n, r in requests.items() if r.result is None},
    )


def _explain(error: Error) -> NoReply:
    """The error in a few words; if it is one of ours, its own sentence."""
    reason = str(error.reason or "the site gave no reason")
    if error.code in (OFFLINE, CRASHED):
        return NoReply("disconnected")
    wrapped = re.fullmatch(r"<class '([\w.]+)'>:<'(.*)'>", reason, re.DOTALL)
    if error.code == refusals.RAISED and wrapped:  # by Flower's own node
        module, _, kind = wrapped[1].rpartition(".")
        own = module.startswith("fedadb.")
        sentence = wrapped[2] if own else f"{kind}: {wrapped[2]}"
        return NoReply(shown(sentence), own and kind in FINAL_ERRORS)
    code, sentence = refusals.parse(reason)
    final = code in refusals.FINAL or error.code == OTHER_APPLICATION
    return NoReply(shown(sentence), final, code)
