"""Schedules: how the learning rate of the clients changes from round to round."""

import math
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

from annotated_types import Ge, Gt, Le


@runtime_checkable
class Schedule(Protocol):
    """The learning rate of each round, as a factor of the plan's: a frozen dataclass.

    ```python
    @dataclass(frozen=True)
    class Linear:
        def factor(self, t, total):
            return 1 - (t - 1) / total

    plan = fedadb.LocalPlan(lr=0.05, schedule=Linear())
    ```
    """

    def factor(self, t: int, total: int) -> float:
        """The factor of round t = 1, 2, …, total; it must be positive."""
        ...


@dataclass(frozen=True)
class Exponential:
    """Multiplies the learning rate by a constant after each round.

    ```python
    plan = fedadb.LocalPlan(lr=0.05, schedule=fedadb.Exponential(decay=0.998))
    ```
    """

    decay: Annotated[float, Gt(0), Le(1)] = 0.99  # factor of the learning rate after each round

    def factor(self, t: int, total: int) -> float:
        return self.decay ** (t - 1)


@dataclass(frozen=True)
class Constant:
    """Keeps the learning rate.

    ```python
    plan = fedadb.LocalPlan(lr=0.05, schedule=fedadb.Constant())
    ```
    """

    def factor(self, t: int, total: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """Lowers the learning rate along half a cosine, slowly at both ends.

    The factor is 1 in the first round and would be `final` in the round after the last one, so the
    last round still trains if `final` is 0.

    ```python
    plan = fedadb.LocalPlan(lr=0.05, schedule=fedadb.Cosine(), warmup=5)
    ```
    """

    final: Annotated[float, Ge(0), Le(1)] = 0.0  # factor that the last round comes close to

    def factor(self, t: int, total: int) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * (t - 1) / total)) / 2


@dataclass(frozen=True)
class Step:
    """Multiplies the learning rate by a constant after every so many rounds.

    ```python
    plan = fedadb.LocalPlan(lr=0.05, schedule=fedadb.Step(every=100, decay=0.1))
    ```
    """

    every: Annotated[int, Ge(1)]  # rounds from one step to the next
    decay: Annotated[float, Gt(0), Le(1)] = 0.1  # factor of the learning rate at each step

    def factor(self, t: int, total: int) -> float:
        return self.decay ** ((t - 1) // self.every)


def shortened(schedule: Schedule, times: float) -> Schedule:
    """The schedule that falls as far in so many times fewer rounds."""
    if isinstance(schedule, Exponential):
        return Exponential(math.pow(schedule.decay, times))
    if isinstance(schedule, Step):
        return Step(max(1, round(schedule.every / times)), schedule.decay)
    return schedule  # cosine follows the number of rounds by itself


SCHEDULES: dict[str, type[Schedule]] = {
    "exponential": Exponential,
    "constant": Constant,
    "cosine": Cosine,
    "step": Step,
}
