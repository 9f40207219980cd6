"""The mean of each coordinate without its extremes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge

from fedadb.core.replies import MissingReply, Reply
from fedadb.filters import robust
from fedadb.filters.gathering import Gathered, GatheringFilter


@dataclass(frozen=True)
class TrimmedMean(GatheringFilter):
    """Of each coordinate, drops the f lowest and the f highest values and takes the mean.

    ```python
    federation = {"clients": 10, "participation": 1.0}
    fedadb.Experiment(federation=federation, filter=[fedadb.NNM(f=2), fedadb.TrimmedMean(f=2)])
    ```
    """

    # how many replies of a round may be faulty; auto: ⌊(m − 1) / 4⌋ of m replies
    f: Annotated[int, Ge(0)] | Literal["auto"] = "auto"
    # "uniform": all replies count the same; "rows": by their rows, which a site may overstate
    weights: Literal["uniform", "rows"] = "uniform"

    has_one_result = True

    @property
    def replies_needed(self) -> int:
        return 5 if self.f == "auto" else 2 * self.f + 1  # of four, auto would drop none

    def combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        f, weights = gathered.faulty(self.f), gathered.weights(self.weights)
        return gathered.with_update([robust.trimmed_mean(x, f, weights) for x in gathered])
