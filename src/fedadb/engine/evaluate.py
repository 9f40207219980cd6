"""Evaluation of weights on a test set."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.transform import Preprocessing
from fedadb.core.vector import Vector
from fedadb.engine.process import one_thread


class Scores(NamedTuple):
    """The result of an evaluation: accuracies in [0, 1] and the mean cross entropy.

    ```python
    scores = fedadb.evaluate(f, f.weights(), shard.examples, fedadb.AsIs(), batch_size=100)
    best_class = max(scores.class_accuracy)
    ```
    """

    accuracy: float
    loss: float
    class_accuracy: list[float]  # nan for a class without test rows
    domain_accuracy: Sequence[float] = ()  # by domain, if the data have several
    validation_accuracy: float | None = None  # on rows that clients do not train on, if any


def mixed_order(n: int) -> Tensor:
    """A fixed order of n test rows that mixes the classes.

    The output of a model with batch statistics depends on the composition of the batch; batches of
    a single class would lower its accuracy.
    """
    return torch.randperm(n, generator=Stream(0, ("test order",)).generator())


@dataclass(frozen=True)
class TestSet:
    """A test set and the model to evaluate on it, in batches of a fixed order and size.

    ```python
    test_set = fedadb.TestSet(f, shard.examples, fedadb.AsIs(), batch_size=100)
    accuracy = test_set.evaluate(f.weights()).accuracy
    ```
    """

    __test__ = False  # not a test case for pytest

    f: Model
    examples: Examples
    transform: Preprocessing
    batch_size: int
    domain: Tensor | None = None  # the domain of each row: 0, 1, …

    def __len__(self) -> int:
        """The number of batches."""
        return -(-len(self.examples.y) // self.batch_size)

    @cached_property
    def cells(self) -> Tensor:
        """The cell of each row: domain · C + class."""
        y = self.examples.y
        return y if self.domain is None else self.domain * self.f.classes + y

    @cached_property
    def counts(self) -> list[int]:
        """The number of rows of each cell, one domain after the other."""
        domains = 1 if self.domain is None else int(self.domain.max()) + 1
        return torch.bincount(self.cells.cpu(), minlength=domains * self.f.classes).tolist()

    @torch.inference_mode()
    def evaluate_batch(self, w: Vector, i: int) -> tuple[float, list[int]]:
        """The summed cross entropy of the i-th batch, and its correct predictions per cell."""
        part = slice(i * self.batch_size, (i + 1) * self.batch_size)
        y = self.examples.y[part]
        logits = self.f(w, self.transform.normalise(self.examples.x[part])).logits
        loss = float(F.cross_entropy(logits, y, reduction="sum"))
        correct = torch.zeros(len(self.counts), dtype=torch.int64, device=y.device)
        correct.index_add_(0, self.cells[part], (logits.argmax(1) == y).long())
        return loss, correct.tolist()

    def scores(self, batches: Iterable[tuple[float, Sequence[int]]]) -> Scores:
        """The scores that follow from the results of all batches, summed in their order."""
        loss, hits = 0.0, [0] * len(self.counts)
        for batch_loss, correct in batches:
            loss += batch_loss
            hits = [h + n for h, n in zip(hits, correct, strict=True)]
        classes = self.f.classes
        by_class = [share(hits[c::classes], self.counts[c::classes]) for c in range(classes)]
        domains = [slice(d, d + classes) for d in range(0, len(hits), classes)]
        return Scores(
            accuracy=share(hits, self.counts),
            loss=loss / len(self.examples.y),
            class_accuracy=by_class,
            domain_accuracy=()
            if self.domain is None
            else [share(hits[part], self.counts[part]) for part in domains],
        )

    def evaluate(self, w: Vector) -> Scores:
        """Evaluate w on all batches."""
        return self.scores(self.evaluate_batch(w, i) for i in range(len(self)))


@dataclass(frozen=True)
class TestSetWithValidation(TestSet):
    """A test set, followed by batches of validation data, of which the accuracy is recorded."""

    validation: TestSet = field(kw_only=True)

    def __len__(self) -> int:
        return super().__len__() + len(self.validation)

    def evaluate_batch(self, w: Vector, i: int) -> tuple[float, list[int]]:
        """As for a test set; of a validation batch, all correct predictions are in one cell."""
        first = super().__len__()
        if i < first:
            return super().evaluate_batch(w, i)
        loss, hits = self.validation.evaluate_batch(w, i - first)
        return loss, [sum(hits)] + [0] * (len(self.counts) - 1)

    def scores(self, batches: Iterable[tuple[float, Sequence[int]]]) -> Scores:
        results = list(batches)
        first = super().__len__()
        hits = [correct[0] for _, correct in results[first:]]
        accuracy = share(hits, self.validation.counts)
        return super().scores(results[:first])._replace(validation_accuracy=accuracy)


def share(hits: Sequence[int], counts: Sequence[int]) -> float:
    """Σ hits / Σ counts; nan if there is nothing to count."""
    return sum(hits) / sum(counts) if sum(counts) else math.nan


def in_and_out_of_distribution(
    class_accuracy: Sequence[float], counts: Sequence[int]
) -> tuple[float, float]:
    """A client model's accuracy on the client's own classes and on the others, as in FedNTD.

    Σ_c p_c A_c and Σ_c (1 − p_c) / (C − 1) A_c, where p_c is the share of class c among the
    client's rows. A class without test rows counts as accuracy 0.
    """
    p = [n / sum(counts) for n in counts]
    known = [0.0 if math.isnan(a) else a for a in class_accuracy]
    own = sum(p_c * a for p_c, a in zip(p, known, strict=True))
    others = sum((1 - p_c) * a for p_c, a in zip(p, known, strict=True)) / (len(counts) - 1)
    return own, others


class Evaluator(Protocol):
    """Evaluates weights, synchronously or in the background."""

    in_background: bool  # whether evaluation proceeds while the caller does other work

    def start(self, w: Vector) -> None:
        """Start evaluating w; the previous `scores()` must have been read."""
        ...

    def scores(self) -> Scores:
        """The scores of the weights given to `start`; waits for them if necessary."""
        ...


@dataclass
class ImmediateEvaluator:
    """Evaluates in this process, when the scores are read."""

    test_set: TestSet
    in_background: bool = False
    _w: Vector | None = None

    def start(self, w: Vector) -> None:
        self._w = w

    def scores(self) -> Scores:
        assert self._w is not None, "`start` comes first"
        return self.test_set.evaluate(self._w)


def evaluate(
    f: Model, w: Vector, test: Examples, transform: Preprocessing, batch_size: int
) -> Scores:
    """Evaluate the weights w of the model f on test data, in one thread.

    Batches are taken in the order of the rows. If the model has batch statistics, the result
    depends on that order and on the batch size.

    ```python
    test = fedadb.Examples(x=torch.randn(500, 10), y=torch.arange(500) % 4)
    scores = fedadb.evaluate(f, f.weights(), test, fedadb.AsIs(), batch_size=100)
    scores.accuracy, scores.loss, scores.class_accuracy
    ```
    """
    with one_thread():
        return TestSet(f, test, transform, batch_size).evaluate(w)
