"""The median of each coordinate, in place of the mean."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fedadb.core.replies import MissingReply, Reply
from fedadb.filters import robust
from fedadb.filters.gathering import Gathered, GatheringFilter


@dataclass(frozen=True)
class Median(GatheringFilter):
    """Replaces all updates by the median of each coordinate.

    It bears fewer than half faulty replies.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.Median()])
    ```
    """

    # "uniform": all replies count the same; "rows": by their rows, which a site may overstate
    weights: Literal["uniform", "rows"] = "uniform"

    has_one_result = True

    @property
    def replies_needed(self) -> int:
        return 3  # of two, it is the mean

    def combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        weights = gathered.weights(self.weights)
        return gathered.with_update([robust.median(x, weights) for x in gathered])
