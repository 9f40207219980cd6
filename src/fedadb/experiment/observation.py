"""Observers: whoever follows a run without taking part in it."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from fedadb.core.errors import BadInput
from fedadb.storage.records import Record

if TYPE_CHECKING:  # it imports torch, and the command line checks names of observers before that
    from fedadb.experiment.config import Experiment

LOG = logging.getLogger("fedadb")
FAILURES = logging.getLogger("fedadb.observers")  # of observers


class ObserverWarning(RuntimeWarning):
    """An observer failed; its run continues without it."""


@runtime_checkable
class Observer(Protocol):
    """Follows runs: it is called at a run's start, after each round, and at the run's end.

    Derive a class from it, and override what you need; a plain function of a record is an observer
    too. No observer can change a run. One that raises is reported once, and is not called again in
    that run.

    ```python
    class Best(fedadb.Observer):
        def start(self, experiment, directory, done):
            self.best = max((record["accuracy"] for record in done), default=0.0)

        def record(self, record):
            self.best = max(self.best, record["accuracy"])

        def end(self, finished, error):
            print("finished" if finished else "stopped", "with", self.best)

    fedadb.run(fedadb.Experiment(rounds=2), observers=[Best(), print])
    ```
    """

    def start(self, experiment: "Experiment", directory: Path, done: Sequence[Record]) -> None:
        """The run starts, or resumes after the rounds in `done`, or finished earlier."""
        return

    def record(self, record: Record) -> None:
        """A round is trained, and its record is saved."""
        return

    def end(self, finished: bool, error: BaseException | None) -> None:
        """The run ends; if it is not finished, `error` says why, or is None if it was left."""
        return


ObserverOrFunction: TypeAlias = Observer | Callable[[Record], object]


@contextmanager
def observed(
    observers: Sequence[Observer],
    experiment: "Experiment",
    directory: Path,
    done: Sequence[Record],
    rounds: Iterator[Record],
) -> Iterator[Iterator[Record]]:
    """The rounds, each of which the observers see before the caller does.

    They also see the start, when the block is entered, and the end, when it is left.
    """
    calls = [ObserverCalls(observer) for observer in observers]
    finished, error = False, None

    def seen() -> Iterator[Record]:
        nonlocal finished
        for record in rounds:
            for call in calls:
                call("record", deepcopy(record))
            yield record
        finished = True

    for call in calls:
        call("start", experiment, directory, deepcopy(list(done)))
    try:
        yield seen()
    except GeneratorExit:  # the caller leaves a generator of rounds
        raise
    except BaseException as raised:
        error = raised
        raise
    finally:
        for call in calls:
            call("end", finished, error)


def as_observers(given: Sequence[ObserverOrFunction]) -> list[Observer]:
    """The observers; functions are wrapped."""
    if not isinstance(given, (list, tuple)):
        raise BadInput(f"observers = {given!r}: must be a list, such as [print]")
    made: list[Observer] = []
    for i, one in enumerate(given):
        if isinstance(one, type):
            raise BadInput(f"observers[{i}] is the class {one.__name__}: give {one.__name__}()")
        if isinstance(one, Observer):
            made.append(one)
        elif callable(one):
            made.append(FunctionObserver(one))
        else:
            raise BadInput(f"observers[{i}] = {one!r}: must be an Observer, or a function")
    return made


@dataclass(frozen=True)
class FunctionObserver(Observer):
    """Calls a function with the record of each new round."""

    function: Callable[[Record], object]

    def record(self, record: Record) -> None:
        self.function(record)


@dataclass
class ObserverCalls:
    """Calls an observer's methods until one of them raises."""

    observer: Observer
    failed: bool = False

    def __call__(self, method: str, *arguments: Any) -> None:
        if self.failed:
            return
        try:
            getattr(self.observer, method)(*arguments)
        except Exception as error:
            self.failed = True
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        """Report the failure in the log and, for programs without one, as a warning."""
        one = self.observer
        name = type(one).__name__
        if isinstance(one, FunctionObserver):
            name = getattr(one.function, "__name__", repr(one.function))
        message = (
            f"the observer {name} failed and is not called again, but the run continues: "
            f"{type(error).__name__}: {error}"
        )
        FAILURES.warning(message)
        with suppress(ObserverWarning):  # raised if the program turns warnings into errors
            warnings.warn(message, ObserverWarning, stacklevel=2)


class RunLog(Observer):
    """Writes what happens in a run to the logger `fedadb`."""

    def start(self, experiment: "Experiment", directory: Path, done: Sequence[Record]) -> None:
        self.directory, self.total, self.done = directory, experiment.rounds, len(done)
        name = experiment.algorithm.name
        if self.done == self.total:
            LOG.info("%s finished earlier, in %s", name, directory)
        elif done:
            LOG.info(
                "%s resumes after round %d of %d in %s", name, len(done), self.total, directory
            )
        else:
            LOG.info("%s starts, with %d rounds, in %s", name, self.total, directory)

    def record(self, record: Record) -> None:
        self.done = record["round"]
        LOG.info("round %d of %d: accuracy %.4f", self.done, self.total, record["accuracy"])
        for client, reason in record.get("lost", {}).items():
            LOG.warning("round %d continued without %s: %s", self.done, client, reason)

    def end(self, finished: bool, error: BaseException | None) -> None:
        if finished:
            LOG.info("finished in %s", self.directory)
        elif error is None:
            LOG.info("left after round %d in %s", self.done, self.directory)
        else:
            reason = str(error) or type(error).__name__
            LOG.warning("stopped after round %d in %s: %s", self.done, self.directory, reason)
