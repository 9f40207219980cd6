"""Clipping at the client: no update is longer than a given norm."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt

from fedadb.core.algorithm import Round
from fedadb.core.filter import Filter, update_norm
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector


@dataclass(frozen=True)
class Clip(Filter):
    """Scales an update Δ that is too long down to the norm: Δ · min(1, norm / ‖Δ‖).

    Only the weights are clipped, not what else an algorithm uploads.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.Clip(norm=1.0)])
    ```
    """

    norm: Annotated[float, Gt(0)]

    def outgoing(
        self, reply: Reply[Any], memory: Any, u: Vector, round: Round
    ) -> tuple[Reply[Any], Any]:
        length = update_norm(reply, u)
        if length <= self.norm or not math.isfinite(length):  # the server reports a divergence
            return reply, memory
        update, scale = reply.w - u, self.norm / length
        clipped = reply.with_weights(u + scale * update)
        while (length := update_norm(clipped, u)) > self.norm:  # u + … was rounded up
            scale *= self.norm / length * (1 - 1e-7)
            clipped = reply.with_weights(u + scale * update)
        return clipped, memory
