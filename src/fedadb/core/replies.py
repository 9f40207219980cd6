"""What clients send back, and the sums that a server forms of it, one reply at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from torch import Tensor
from typing_extensions import TypeVar

from fedadb.core.vector import HasWeights, Vector, Weights

U = TypeVar("U", bound=HasWeights, default=Weights)  # upload: what a client sends
V = TypeVar("V", Vector, Tensor)
Item = TypeVar("Item", covariant=True)


class Reply(NamedTuple, Generic[U]):
    """What client k sends back: its upload, its number of rows n_k, and measurements."""

    upload: U
    examples: Tensor
    measured: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def w(self) -> Vector:
        """w_k: the weights that it trained."""
        return self.upload.w

    def with_weights(self, w: Vector) -> "Reply[U]":
        """The same reply with other weights."""
        return self._replace(upload=self.upload._replace(w=w))  # type: ignore[attr-defined]


class MissingReply(NamedTuple):
    """Why a client's reply is missing or cannot be used; the round continues without it.

    ```python
    fedadb.MissingReply("its update is too long")
    ```
    """

    reason: str


class Replies(Generic[Item]):
    """The replies of a round as a stream, in the order of the clients.

    It can be read once, because a reply is released as soon as the next one is read: the memory of
    a round does not depend on the number of its clients.
    """

    def __init__(
        self,
        stream: Iterable[Item],
        rows: Sequence[int],
        needed: int = 1,
        received: int | None = None,
    ) -> None:
        self.rows = rows  # n_k of each client that is expected to reply
        self.needed = needed  # replies, after the filters
        self.received = received  # bytes per client, if clients sent something else
        self._stream: Iterator[Item] | None = iter(stream)

    def __iter__(self) -> Iterator[Item]:
        if self._stream is None:
            raise TypeError("the replies of a round can be read once; list(replies) keeps them")
        stream, self._stream = self._stream, None
        return stream


def update_of(reply: Reply[Any], u: Vector) -> Tensor:
    """Δ = w_k − u in float64, for a client that received the weights u."""
    return reply.w.flat.double() - u.flat.double()


def weights_after(update: Tensor, u: Vector) -> Vector:
    """The weights u + Δ, for an update Δ in float64."""
    return Vector((u.flat.double() + update).to(u.flat.dtype), u.layout)


class Sum(Generic[V]):
    """Σ a_i v_i of Vectors or of Tensors, accumulated term by term in the given order."""

    def __init__(self) -> None:
        self._total: V | None = None

    def add(self, a: float, v: V) -> None:
        """Add the term a · v."""
        if self._total is None:
            self._total = a * v
        elif isinstance(self._total, Vector):
            self._total.add_(v, a)
        else:
            self._total = self._total + a * v

    @property
    def total(self) -> V:
        if self._total is None:
            raise ValueError("the sum has no terms")
        return self._total


class Mean(Generic[V]):
    """Σ p_k v_k over a round's replies, accumulated reply by reply.

    p_k = n_k / Σ n, or 1 / (number of replies) if not weighted. The sum is known before the first
    reply is read. If replies are dropped afterwards, the mean is corrected at the end.
    """

    def __init__(self, replies: Iterable[Reply[Any]], weighted: bool = True) -> None:
        rows = expected_rows(replies)
        self._weighted = weighted
        self._expected = sum(rows) if weighted else len(rows)
        self._added = 0
        self._sum: Sum[V] = Sum()

    def add(self, reply: Reply[Any], v: V) -> None:
        """Add v with the weight of this reply."""
        n = int(reply.examples) if self._weighted else 1
        self._added += n
        self._sum.add(n / self._expected, v)

    @property
    def value(self) -> V:
        if self._added == self._expected:
            return self._sum.total
        return self._sum.total * (self._expected / self._added)


def expected_rows(replies: Iterable[Reply[Any]]) -> Sequence[int]:
    """n_k of each reply, before any is read."""
    if isinstance(replies, Replies):
        return replies.rows
    if isinstance(replies, Sequence):
        return [int(reply.examples) for reply in replies]
    raise TypeError("a mean needs the replies that `aggregate` receives, or a list of them")


def average(replies: Iterable[Reply[Any]], weighted: bool = True) -> Vector:
    """Σ p_k w_k: the mean of the clients' weights, by number of rows unless `weighted` is false.

    ```python
    w = fedadb.average(replies)
    ```
    """
    mean: Mean[Vector] = Mean(replies, weighted)
    for reply in replies:
        mean.add(reply, reply.w)
    return mean.value
