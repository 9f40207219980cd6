"""All replies of a round at once, for rules that compare them with each other."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput, Fault
from fedadb.core.filter import NOT_FINITE, Filter
from fedadb.core.replies import MissingReply, Reply, weights_after
from fedadb.core.vector import Vector, Weights, is_finite

PIECE = 1 << 20  # coordinates; a round holds its replies and m pieces of float64


class Gathered:
    """The replies of a round; iterating yields their updates Δ_k in pieces of float64.

    Replies that are not finite are dropped.
    """

    def __init__(self, replies: Iterable[Reply[Any] | MissingReply], u: Vector) -> None:
        self.u = u
        self.answers = [_finite_or_missing(answer) for answer in replies]
        self.replies = [answer for answer in self.answers if isinstance(answer, Reply)]
        missing = [answer for answer in self.answers if isinstance(answer, MissingReply)]
        self.not_finite = missing.count(NOT_FINITE)  # also those that an earlier filter dropped

    def __iter__(self) -> Iterator[Tensor]:
        flat = [reply.w.flat for reply in self.replies]
        for i in range(0, self.u.flat.numel(), PIECE):
            stacked = torch.stack([one[i : i + PIECE] for one in flat]).double()
            yield stacked - self.u.flat[i : i + PIECE].double()

    def require(self, filter: Filter, round: Round) -> None:
        """Raise unless the filter can do what it promises with these replies.

        One that is not finite counts as a reply: it is a faulty one that has been found.
        """
        for reply in self.replies:
            if not isinstance(reply.upload, Weights):
                raise BadInput(
                    f"{type(filter).__name__} replaces the weights of replies, and these replies "
                    f"are a {type(reply.upload).__name__}, which has more than weights"
                )
        received, needed = len(self.replies) + self.not_finite, filter.replies_needed
        if received < needed:
            raise Fault(f"round {round.t} has {received} replies, but {filter} needs {needed}")

    def faulty(self, f: int | Literal["auto"]) -> int:
        """How many of the finite replies are assumed to be faulty."""
        received = len(self.replies) + self.not_finite
        return max(assumed_faulty(f, received) - self.not_finite, 0)

    def weights(self, by: Literal["uniform", "rows"]) -> Tensor | None:
        """n_k of each reply; None: all count alike."""
        if by == "uniform":
            return None
        rows = [int(reply.examples) for reply in self.replies]
        return torch.tensor(rows, dtype=torch.float64, device=self.u.flat.device)

    def with_update(self, v: Sequence[Tensor]) -> Iterator[Reply[Any] | MissingReply]:
        """The answers in their order, each reply with the weights u + v.

        There are as many replies as before, because algorithms may sum over them. Their rows stay:
        the weighted mean of equal replies is that reply.
        """
        w = weights_after(torch.cat(list(v)), self.u)
        for answer in self.answers:
            yield answer.with_weights(w) if isinstance(answer, Reply) else answer

    def with_updates(
        self, updates: Iterable[Tensor], by: Literal["uniform", "rows"]
    ) -> Iterator[Reply[Any] | MissingReply]:
        """The answers in their order, reply k with the weights u + Δ_k of these updates.

        The updates are in pieces. If all replies count alike, each has one row.
        """
        moved = self.u.flat.new_empty(len(self.replies), self.u.flat.numel())
        for i, piece in enumerate(updates):
            part = slice(i * PIECE, i * PIECE + piece.shape[1])
            moved[:, part] = self.u.flat[part].double() + piece
        weights = iter(moved)
        for answer in self.answers:
            if isinstance(answer, Reply):
                if by == "uniform":
                    answer = answer._replace(examples=torch.ones_like(answer.examples))
                answer = answer.with_weights(Vector(next(weights), self.u.layout))
            yield answer


def assumed_faulty(f: int | Literal["auto"], m: int) -> int:
    """How many of m replies are assumed to be faulty."""
    return (m - 1) // 4 if f == "auto" else f


class GatheringFilter(Filter):
    """A filter whose server's end needs all replies at once; `combine` takes `incoming`'s place."""

    replaces_replies = True

    def combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        """What the server uses in place of the replies, of which there is at least one."""
        raise NotImplementedError

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Any, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Any]:
        gathered = Gathered(replies, u)
        gathered.require(self, round)
        yield from self.combine(gathered) if gathered.replies else gathered.answers
        return state


def _finite_or_missing(answer: Reply[Any] | MissingReply) -> Reply[Any] | MissingReply:
    return NOT_FINITE if isinstance(answer, Reply) and not is_finite(answer.w.flat) else answer
