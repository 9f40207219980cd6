"""The mean of each coordinate without its extremes."""

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
class TrimmedMean(Filter):
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

    replaces_replies = True
    has_one_result = True

    @property
    def replies_needed(self) -> int:
        return 5 if self.f == "auto" else 2 * self.f + 1  # of four, auto would drop none

    def incoming(
        self, replies: Iterable[Reply[Any] | MissingReply], state: Any, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Any]:
        yield from combined(self, replies, u, round, self._combine)
        return state

    def _combine(self, gathered: Gathered) -> Iterator[Reply[Any] | MissingReply]:
        f, weights = gathered.faulty(self.f), gathered.weights(self.weights)
        return gathered.with_update([robust.trimmed_mean(x, f, weights) for x in gathered])
