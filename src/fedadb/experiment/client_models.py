"""Evaluation of the clients' own models, before the server combines them."""

import time
from collections.abc import Sequence
from typing import Any

from fedadb.core.replies import Reply
from fedadb.engine.evaluate import TestSet, in_and_out_of_distribution
from fedadb.engine.federate import Snapshot
from fedadb.storage.records import Record


class ClientModels:
    """Evaluates each reply as it arrives, and adds up the time that this takes."""

    def __init__(self, test_set: TestSet | None) -> None:
        assert test_set is not None, "record_clients is refused where there are no test data"
        self._test_set = test_set
        self._seconds = 0.0

    def evaluate(self, reply: Reply[Any]) -> list[float]:
        """The accuracy of the client's model on each class."""
        began = time.perf_counter()
        accuracy = self._test_set.evaluate(reply.w).class_accuracy
        self._seconds += time.perf_counter() - began
        return accuracy

    def take_seconds(self) -> float:
        """The time spent since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def client_scores(now: Snapshot[Any], counts: Sequence[Sequence[int]]) -> Record:
    """In- and out-of-distribution accuracy of the clients' models, weighted by their rows.

    A round without clients has none.
    """
    if not now.replies:
        return {}
    rows = [note.examples for note in now.replies]
    accuracies = [
        in_and_out_of_distribution(note.inspected, counts[k])
        for k, note in zip(now.clients, now.replies, strict=True)
    ]
    in_local, out_local = (
        sum(n * value for n, value in zip(rows, values, strict=True)) / sum(rows)
        for values in zip(*accuracies, strict=True)
    )
    return {"in_local": in_local, "out_local": out_local}
