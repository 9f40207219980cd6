"""Rounds come with their scores, and background evaluation overlaps with training."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch

from fedadb.core.errors import Fault
from fedadb.core.vector import Layout, Vector
from fedadb.engine.evaluate import Scores
from fedadb.engine.pipeline import evaluated

LAYOUT = Layout(("w",), ((1,),))


def weights(t: int) -> Vector:
    return Vector(torch.tensor([float(t)]), LAYOUT)


@dataclass
class LoggingEvaluator:
    """The accuracy of a round is its number; every call is logged."""

    in_background: bool
    log: list[str]
    fails_at: int = 0
    _t: int = field(default=0)

    def start(self, w: Vector) -> None:
        self._t = int(w.flat)
        self.log.append(f"start {self._t}")

    def scores(self) -> Scores:
        self.log.append(f"scores {self._t}")
        if self._t == self.fails_at:
            raise Fault("no scores")
        return Scores(float(self._t), 0.0, [])


def rounds(total: int, log: list[str], fails_at: int = 0) -> Iterator[int]:
    for t in range(1, total + 1):
        if t == fails_at:
            raise Fault("diverged")
        log.append(f"train {t}")
        yield t


def consume(evaluator: LoggingEvaluator, trained: Iterator[int]) -> Iterator[int]:
    for t, scores in evaluated(trained, evaluator, weights):
        assert scores.accuracy == t
        evaluator.log.append(f"record {t}")
        yield t


def test_an_immediate_evaluator_is_read_before_the_next_round_trains() -> None:
    log: list[str] = []
    assert list(consume(LoggingEvaluator(False, log), rounds(2, log))) == [1, 2]
    one = ["train 1", "start 1", "scores 1", "record 1"]
    assert log == one + [line.replace("1", "2") for line in one]


def test_a_background_evaluator_works_while_the_next_round_trains() -> None:
    log: list[str] = []
    assert list(consume(LoggingEvaluator(True, log), rounds(3, log))) == [1, 2, 3]
    assert log == [
        *("train 1", "start 1"),
        *("train 2", "scores 1", "start 2", "record 1"),
        *("train 3", "scores 2", "start 3", "record 2"),
        *("scores 3", "record 3"),
    ]


@pytest.mark.parametrize("in_background", [True, False])
def test_the_last_good_round_is_recorded_before_a_failure_is_raised(in_background: bool) -> None:
    log: list[str] = []
    recorded = consume(LoggingEvaluator(in_background, log), rounds(5, log, fails_at=3))
    assert [next(recorded), next(recorded)] == [1, 2]
    with pytest.raises(Fault, match="diverged"):
        next(recorded)


def test_a_failing_evaluator_does_not_hide_the_failure_of_a_round() -> None:
    log: list[str] = []
    recorded = consume(LoggingEvaluator(True, log, fails_at=2), rounds(5, log, fails_at=3))
    assert next(recorded) == 1
    with pytest.raises(Fault, match="diverged"):
        next(recorded)


def test_no_rounds_give_nothing() -> None:
    for in_background in (True, False):
        assert list(consume(LoggingEvaluator(in_background, []), rounds(0, []))) == []
