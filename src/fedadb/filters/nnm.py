"""Nearest-neighbour mixing: a step before a robust mean, for data that differ by client."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge

from fedadb.core.replies import MissingReply, Reply
from fedadb.filters import robust
from fedadb.filters.gathering import Gathered, GatheringFilter


@dataclass(frozen=True)
class NNM(GatheringFilter):
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

    @property
    def replies_needed(self) -> int:
        return 5 if self.f == "auto" else 2 * self.f + 1

    def combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        distances = robust.squared_distances(gathered)
        mixing = robust.neighbour_mixing(distances, gathered.faulty(self.f))
        return gathered.with_updates((mixing @ x for x in gathered), self.weights)
