"""Centred clipping: updates are clipped around the result of the last round."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.filter import Filter
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.vector import Vector
from fedadb.filters import robust
from fedadb.filters.gathering import PIECE, Gathered


class Centre(NamedTuple):
    """The server's state: the result of the last round."""

    v: Tensor  # in float64


@dataclass(frozen=True)
class CentredClip(Filter):
    """Replaces all updates by v + mean of (Δ_k − v) · min(1, τ / ‖Δ_k − v‖).

    v is the result of the last round, at first 0.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.CentredClip(tau=1.0)])
    ```
    """

    # τ: largest distance from the last result that counts in full; auto: the median distance
    tau: Annotated[float, Gt(0)] | Literal["auto"] = "auto"
    steps: Annotated[int, Ge(1)] = 1  # steps towards the centre per round
    # "uniform": all replies count the same; "rows": by their rows, which a site may overstate
    weights: Literal["uniform", "rows"] = "uniform"

    replaces_replies = True
    has_one_result = True

    @property
    def replies_needed(self) -> int:
        return 3

    def init(self, w: Vector) -> Centre:
        return Centre(torch.zeros_like(w.flat, dtype=torch.float64))

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Centre, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Centre]:
        gathered = Gathered(replies, u)
        gathered.require(self, round)
        if not gathered.replies:
            yield from gathered.answers
            return state
        tau = None if self.tau == "auto" else self.tau
        weights, before = gathered.weights(self.weights), list(torch.split(state.v, PIECE))
        v = robust.centred_clip(gathered, before, tau, weights, self.steps)
        yield from gathered.with_update(v)
        return Centre(torch.cat(v))
