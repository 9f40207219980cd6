"""A bound at the server: it does not use an update that is longer than a given norm."""

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt

from fedadb.core.algorithm import Round
from fedadb.core.filter import NOT_FINITE, Filter, update_norm
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.vector import Vector


@dataclass(frozen=True)
class NormBound(Filter):
    """Drops a reply whose update Δ has ‖Δ‖ > norm, or is not finite.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.NormBound(norm=50.0)])
    ```
    """

    norm: Annotated[float, Gt(0)]  # a reply whose update is longer is dropped

    @property
    def compares_replies(self) -> bool:
        return False

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Any, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Any]:
        for reply in replies:
            if isinstance(reply, MissingReply):
                yield reply
                continue
            length = update_norm(reply, u)
            if length <= self.norm:
                yield reply
            elif math.isfinite(length):
                yield MissingReply(
                    f"its weights are {length:.7g} away from the received ones; norm_bound is "
                    f"{self.norm:g}"
                )
            else:
                yield NOT_FINITE
        return state
