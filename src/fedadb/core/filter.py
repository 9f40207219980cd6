"""Filters: what happens to replies between the clients and an algorithm's `aggregate`."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch

from fedadb.core.algorithm import Algorithm, Round, upload_kind
from fedadb.core.errors import BadInput
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights

# the reason why a filter drops a reply that is not finite
NOT_FINITE = MissingReply("its weights are not finite")


class Filter:
    """A frozen dataclass whose fields are the settings; it overrides one end, or both.

    The clients' ends of all filters come first, in the order of the experiment, and then the
    server's ends in the same order. Algorithms know nothing of filters.

    A filter sees the client's update Δ = w_k − u, where u are the weights that the client received
    (the broadcast's, which for some algorithms are not the server's). What both ends keep between
    rounds is a NamedTuple of Vectors and Tensors.

    ```python
    @dataclass(frozen=True)
    class Round16(fedadb.Filter):  # a client end: send the update in half the precision

        def outgoing(self, reply, memory, u, round):
            delta = (reply.w - u).map(lambda t: t.half().float())
            return reply.with_weights(u + delta), memory


    @dataclass(frozen=True)
    class DropSmall(fedadb.Filter):  # a server end: drop updates that are too short
        norm: float = 0.01

        def incoming(self, replies, state, u, round):
            for reply in replies:
                if isinstance(reply, fedadb.MissingReply) or (reply.w - u).norm() > self.norm:
                    yield reply
                else:
                    yield fedadb.MissingReply("its update is too short")
            return state
    ```
    """

    # Whether the server's end replaces replies by a result of several, such as their median.
    replaces_replies: ClassVar[bool] = False
    # Whether that is one result, so that all replies are the same after it.
    has_one_result: ClassVar[bool] = False

    @property
    def replies_needed(self) -> int:
        """The replies that a round must have, or the filter cannot do what it promises."""
        return 1

    @property
    def needs_single_replies(self) -> bool:
        """Whether the server's end needs single replies. Then there is no secure aggregation."""
        return type(self).incoming is not Filter.incoming

    @property
    def compares_replies(self) -> bool:
        """Whether what the server's end does with a reply depends on other replies."""
        return type(self).incoming is not Filter.incoming

    # client

    def memory(self, w: Vector) -> Any:
        """What a client keeps for this filter before its first round."""
        return ()

    def outgoing(
        self, reply: Reply[Any], memory: Any, u: Vector, round: Round
    ) -> tuple[Reply[Any], Any]:
        """What the client sends in place of its reply, and what it keeps.

        If the server does not use the reply, the client returns to the memory before it.
        """
        return reply, memory

    # server

    def init(self, w: Vector) -> Any:
        """What the server keeps for this filter before the first round."""
        return ()

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Any, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Any]:
        """Yield a reply for each reply, in their order; return what the server keeps.

        A MissingReply in place of a reply drops it; those of earlier filters are passed on. A
        filter whose result is one vector v yields it as every client's weights u + v, so that sums
        over clients keep their scale.
        """
        yield from replies
        return state


class Compressor(Filter):
    """A filter that makes uploads smaller: a client sends its update in a form of fewer bytes.

    `compress` takes the place of `outgoing`, and it is the last of the clients' ends. The server
    counts the bytes of what it receives, and then restores the weights, before the server's ends.
    Clients of the algorithm must upload their weights alone.

    ```python
    class Halves(NamedTuple):
        update: torch.Tensor


    @dataclass(frozen=True)
    class Half(fedadb.Compressor):
        def compress(self, w, u, memory, round, rng):
            return Halves((w - u).flat.half()), memory

        def restore(self, sent, u):
            return u + fedadb.Vector(sent.update.float(), u.layout)
    ```
    """

    def compress(
        self, w: Vector, u: Vector, memory: Any, round: Round, rng: Stream
    ) -> tuple[Any, Any]:
        """What the client sends in place of its weights w, and what it keeps.

        It sends a NamedTuple of Tensors, which have the same types and shapes for all weights of a
        model; or Weights(w), if there is nothing to gain.
        """
        raise NotImplementedError

    def restore(self, sent: Any, u: Vector) -> Vector:
        """The weights that the server uses. Raises Fault if they cannot be restored."""
        raise NotImplementedError


def check_filters(filters: Sequence[Filter], algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    """Raise BadInput if a filter compresses what it cannot, or takes what another filter needs."""
    _check_results(filters)
    compressor: Compressor | None = None
    for one in filters:
        name = type(one).__name__
        if compressor is not None and isinstance(one, Compressor):
            raise BadInput(
                f"filter: {type(compressor).__name__} and {name} both compress uploads; keep one"
            )
        if compressor is not None and type(one).outgoing is not Filter.outgoing:
            raise BadInput(
                f"filter: {name} changes a client's update, so it must come before "
                f"{type(compressor).__name__}, which compresses it"
            )
        if isinstance(one, Compressor):
            compressor = one
    if compressor is None:
        return
    name = type(compressor).__name__
    if upload_kind(algorithm) not in (Weights, None):  # None: not known before the first upload
        raise BadInput(
            f"filter: {name} compresses weights, but clients of {algorithm.name} upload more than "
            "weights; drop the filter"
        )
    if algorithm.remembers_updates:
        raise BadInput(
            f"filter: {name} changes the updates that the server receives, but clients of "
            f"{algorithm.name} remember theirs unchanged; drop the filter"
        )


def _check_results(filters: Sequence[Filter]) -> None:
    """Raise BadInput if a filter is to choose among replies that another one has made equal."""
    first: Filter | None = None
    for one in filters:
        if first is not None and one.replaces_replies:
            earlier, later = type(first).__name__, type(one).__name__
            remedy = "keep one" if one.has_one_result else f"put {later} before {earlier}"
            raise BadInput(
                f"filter: after {earlier} all replies are the same, so {later} changes nothing; "
                f"{remedy}"
            )
        if one.has_one_result:
            first = one


def send_through(
    filters: Sequence[Filter],
    reply: Reply[Any],
    memories: Sequence[Any],
    u: Vector,
    round: Round,
    rng: Stream,
) -> tuple[Reply[Any], tuple[Any, ...]]:
    """The reply that leaves the client, and what the client keeps for each filter.

    `rng` is the client's random stream of the round.
    """
    kept = []
    for one, memory in zip(filters, memories, strict=True):
        if isinstance(one, Compressor):
            reply, memory = _compress(one, reply, memory, u, round, rng)
        else:
            sent = one.outgoing(reply, memory, u, round)
            if not (isinstance(sent, tuple) and len(sent) == 2 and isinstance(sent[0], Reply)):
                raise BadInput(f"{type(one).__name__}.outgoing must return a reply and its memory")
            reply, memory = sent
        kept.append(memory)
    return reply, tuple(kept)


def _compress(
    compressor: Compressor, reply: Reply[Any], memory: Any, u: Vector, round: Round, rng: Stream
) -> tuple[Reply[Any], Any]:
    name = type(compressor).__name__
    if not isinstance(reply.upload, Weights):
        raise BadInput(
            f"filter: {name} compresses weights, but the upload is a {type(reply.upload).__name__}"
        )
    # A stream of its own: the client's batches do not depend on the filter.
    sent = compressor.compress(reply.w, u, memory, round, rng.at("compress"))
    if not (isinstance(sent, tuple) and len(sent) == 2 and hasattr(sent[0], "_fields")):
        raise BadInput(f"{name}.compress must return a NamedTuple and its memory")
    return reply._replace(upload=sent[0]), sent[1]


def restore(filters: Sequence[Filter], reply: Reply[Any], u: Vector) -> Reply[Any]:
    """The reply with weights in place of what a compressor made of them."""
    for one in filters:
        if isinstance(one, Compressor) and not isinstance(reply.upload, Weights):
            return reply._replace(upload=Weights(one.restore(reply.upload, u)))
    return reply


def receive_through(
    filters: Sequence[Filter],
    replies: Iterable[Reply[Any] | MissingReply],
    states: list[Any],
    u: Vector,
    round: Round,
) -> Iterator[Reply[Any] | MissingReply]:
    """The replies as the server uses them; `states` is updated when the stream has ended."""

    def through(
        i: int, before: Iterable[Reply[Any] | MissingReply]
    ) -> Iterator[Reply[Any] | MissingReply]:
        kept = yield from filters[i].incoming(before, states[i], u, round)
        if type(kept) is not type(states[i]):
            raise BadInput(
                f"{type(filters[i]).__name__}.incoming must return its state: a "
                f"{type(states[i]).__name__}, not a {type(kept).__name__}"
            )
        states[i] = kept

    for i in range(len(filters)):
        replies = through(i, replies)
    return iter(replies)


def update_norm(reply: Reply[Any], u: Vector) -> float:
    """‖Δ‖ in float64: in float32 the norm of millions of numbers is up to 0.05 % too small."""
    return float(torch.linalg.vector_norm((reply.w - u).flat, dtype=torch.float64))
