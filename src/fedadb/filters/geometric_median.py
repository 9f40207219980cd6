"""The geometric median, in place of the mean."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from fedadb.core.replies import MissingReply, Reply
from fedadb.filters import robust
from fedadb.filters.gathering import Gathered, GatheringFilter


@dataclass(frozen=True)
class GeometricMedian(GatheringFilter):
    """Replaces all updates by the point with the smallest sum of distances to them.

    It is found by Weiszfeld's steps from the median of each coordinate, for the model as a whole.
    It bears less than half of the weight in faulty replies.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.GeometricMedian()])
    ```
    """

    # distances below this share of the median norm of updates count as that long
    nu: Annotated[float, Gt(0)] = 1e-6
    steps: Annotated[int, Ge(1)] = 100  # at most so many iterations
    # the iteration ends with a step of a smaller relative change
    tolerance: Annotated[float, Ge(0)] = 1e-6
    # "uniform": all replies count the same; "rows": by their rows, which a site may overstate
    weights: Literal["uniform", "rows"] = "uniform"

    has_one_result = True

    @property
    def replies_needed(self) -> int:
        return 3

    def combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        weights = gathered.weights(self.weights)
        start = [robust.median(x, weights) for x in gathered]
        return gathered.with_update(
            robust.geometric_median(gathered, start, weights, self.nu, self.steps, self.tolerance)
        )
