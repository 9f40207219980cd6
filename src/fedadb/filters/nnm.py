"""Nearest-neighbour mixing: a step before a robust mean, for data that differ by client."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge

from fedadb.core.algorithm import Round
from fedadb.core.filter import Filter
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.vector import Vector
from fedadb.filters import robust
from fedadb.filters.gathering import Gathered, combined


@dataclass(frozen=True)
class NNM(Filter):
    """Replaces each update by the mean of the m − f updates nearest to it, itself included.

    A robust mean after it then sees updates that differ less.

    ```python
    federation = {"clients": 10, "participation": 1.0}
    fedadb.Experiment(federation=federation, filter=[fedadb.NNM(), fedadb.TrimmedMean()])
    ```
    """

    # how many replies of a round may be faulty; auto: ⌊(m − 1) / 4⌋ of m replies
    f: Annotated[int, Ge(0)] | Literal["auto"] = "auto"
    # "uniform": what comes after it counts each result once; "rows": by the rows of its client
    weights: Literal["uniform", "rows"] = "uniform"

    replaces_replies = True

    @property
    def replies_needed(self) -> int:
        return 5 if self.f == "auto" else 2 * self.f + 1

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Any, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Any]:
        yield from combined(self, replies, u, round, self._combine)
        return state

    def _combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        distances = robust.squared_distances(gathered)
        mixing = robust.neighbour_mixing(distances, gathered.faulty(self.f))
        return gathered.with_updates((mixing @ x for x in gathered), self.weights)
