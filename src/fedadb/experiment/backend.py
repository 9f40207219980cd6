"""Where a run's clients train and its models are evaluated."""

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fedadb.core.model import Model
from fedadb.engine.cohorts import Cohort
from fedadb.engine.evaluate import Evaluator, TestSet
from fedadb.engine.federate import Snapshot
from fedadb.experiment.build import DataSummary
from fedadb.experiment.config import Experiment
from fedadb.filters.mechanism import NoiseSource
from fedadb.progress import Progress


class RandomSource(NoiseSource, Protocol):
    """Draws the clients of each round, and the noise of a differentially private run."""

    @property
    def secret(self) -> bool:
        """Whether nobody else can draw the same; a simulation's seed is no secret."""
        ...

    def sample(self, t: int) -> Sequence[int]:
        """The clients of round t."""
        ...


class Backend(Protocol):
    """A simulation on this machine or a Ray cluster, or a real federation."""

    @property
    def f(self) -> Model: ...

    @property
    def data(self) -> DataSummary: ...

    def client_name(self, k: int) -> str:
        """The name of client k in records."""
        ...

    @property
    def test_set(self) -> TestSet | None:
        """The test data on this machine; None if only the sites have any."""
        ...

    @property
    def random(self) -> RandomSource: ...

    def open(
        self, memories: MutableMapping[int, Any]
    ) -> AbstractContextManager[tuple[Cohort[Any], Evaluator]]:
        """Start the cohort, which reads and writes the clients' memories, and the evaluator."""
        ...

    def personal_accuracies(
        self, now: Snapshot[Any], memories: MutableMapping[int, Any]
    ) -> dict[str, list[float]]:
        """The accuracy of each client's personal models after a round, by kind of model.

        Kinds are "global", "tuned" and, if the algorithm's clients have one of their own, "head".
        The memories are those after the round, and stay as they are.
        """
        ...

    def use(self, t: int, clients: Sequence[int]) -> None:
        """Called when the server has used the replies of these clients in round t."""
        ...


MakeBackend = Callable[[Experiment, Progress], AbstractContextManager[Backend]]
