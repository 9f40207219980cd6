"""Multi-Krum: the mean of the updates that lie closest to others."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge

from fedadb.core.replies import MissingReply, Reply
from fedadb.filters import robust
from fedadb.filters.gathering import Gathered, GatheringFilter, assumed_faulty


@dataclass(frozen=True)
class MultiKrum(GatheringFilter):
    """Takes the mean of the updates whose m − f − 2 nearest neighbours are nearest.

    `keep = 1` is Krum. Labels that only one client has look like an attack: its update is dropped.

    ```python
    federation = {"clients": 10, "participation": 1.0}
    fedadb.Experiment(federation=federation, filter=[fedadb.MultiKrum(f=2)])
    ```
    """

    # how many replies of a round may be faulty; auto: ⌊(m − 1) / 4⌋ of m replies
    f: Annotated[int, Ge(0)] | Literal["auto"] = "auto"
    # how many updates the mean is of, at most m − f; auto: m − f
    keep: Annotated[int, Ge(1)] | Literal["auto"] = "auto"
    # "uniform": all replies count the same; "rows": by their rows, which a site may overstate
    weights: Literal["uniform", "rows"] = "uniform"

    has_one_result = True

    @property
    def replies_needed(self) -> int:
        m = 5 if self.f == "auto" else 2 * self.f + 3
        if self.keep != "auto":  # with fewer, faulty replies would be among those that it keeps
            while m - assumed_faulty(self.f, m) < self.keep:
                m += 1
        return m

    def combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        f, weights = gathered.faulty(self.f), gathered.weights(self.weights)
        keep = len(gathered.replies) - f if self.keep == "auto" else self.keep
        scores = robust.krum_scores(robust.squared_distances(gathered), f)
        best = robust.lowest(scores, keep)
        counted = None if weights is None else weights[best]
        return gathered.with_update([robust.mean(x[best], counted) for x in gathered])
