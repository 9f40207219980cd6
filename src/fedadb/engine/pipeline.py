"""Evaluates each round of a federation while the next one trains."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from fedadb.core.errors import BadInput, Fault
from fedadb.core.vector import Vector
from fedadb.engine.evaluate import Evaluator, Scores

Item = TypeVar("Item")


def evaluated(
    rounds: Iterable[Item], evaluator: Evaluator, weights: Callable[[Item], Vector]
) -> Iterator[tuple[Item, Scores]]:
    """Each round with the scores of its weights.

    With a background evaluator, a round is yielded when the next one has been trained, and the
    next one's evaluation has begun by then. If training fails, the last good round is still
    yielded before the error is raised.
    """
    if not evaluator.in_background:
        for item in rounds:
            evaluator.start(weights(item))
            yield item, evaluator.scores()
        return
    waiting: list[Item] = []  # the round that is being evaluated, if any
    try:
        for item in rounds:
            done = [(previous, evaluator.scores()) for previous in waiting]
            waiting = [item]
            evaluator.start(weights(item))
            yield from done
    except (BadInput, Fault):
        with suppress(Fault):  # the evaluator may have failed as well
            yield from [(item, evaluator.scores()) for item in waiting]
        raise
    yield from [(item, evaluator.scores()) for item in waiting]
