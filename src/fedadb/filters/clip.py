"""Clipping: no update is longer than a given norm, or than a quantile of the round's norms."""

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Gt, Le

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput
from fedadb.core.filter import Filter, update_norm
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.vector import Vector
from fedadb.filters.gathering import Gathered


@dataclass(frozen=True)
class Clip(Filter):
    """Scales an update Δ that is too long down to the norm: Δ · min(1, norm / ‖Δ‖).

    With `norm`, each client does it. With `quantile`, the server does it: the norm is that quantile
    of the updates of the round. Only the weights are clipped, not what else an algorithm uploads.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.Clip(norm=1.0)])
    fedadb.Experiment(dataset="digits", filter=[fedadb.Clip(quantile=0.5)])
    ```
    """

    norm: Annotated[float, Gt(0)] | None = None  # largest norm of an update, at the client
    # in place of the norm, at the server: the quantile of the round's norms; 0.5: the median
    quantile: Annotated[float, Gt(0), Le(1)] | None = None

    def __post_init__(self) -> None:
        if self.norm is None and self.quantile is None:
            raise BadInput("norm is missing; give norm, or quantile")
        if self.norm is not None and self.quantile is not None:
            raise BadInput(f"quantile = {self.quantile}: norm is given too; give one of them")

    @property
    def needs_single_replies(self) -> bool:
        return self.quantile is not None

    @property
    def compares_replies(self) -> bool:
        return self.quantile is not None

    def outgoing(
        self, reply: Reply[Any], memory: Any, u: Vector, round: Round
    ) -> tuple[Reply[Any], Any]:
        return (reply if self.norm is None else clipped(reply, u, self.norm)), memory

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Any, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Any]:
        if self.quantile is None:
            yield from replies
            return state
        gathered = Gathered(replies, u)
        norms = [update_norm(reply, u) for reply in gathered.replies]
        limit = 0.0
        if norms:
            limit = float(torch.tensor(norms, dtype=torch.float64).quantile(self.quantile))
        for answer in gathered.answers:
            yield clipped(answer, u, limit) if isinstance(answer, Reply) else answer
        return state


def clipped(reply: Reply[Any], u: Vector, norm: float) -> Reply[Any]:
    """The reply, with an update of at most that norm."""
    length = update_norm(reply, u)
    if length <= norm or not math.isfinite(length):  # the server reports a divergence
        return reply
    update, scale = reply.w - u, norm / length
    shorter = reply.with_weights(u + scale * update)
    while (length := update_norm(shorter, u)) > norm:  # u + … was rounded up
        scale *= norm / length * (1 - 1e-7)
        shorter = reply.with_weights(u + scale * update)
    return shorter
