"""How good a model is on a test set."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F

from fedadb.core.data import Examples
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs, Transform
from fedadb.core.vector import Vector


class Scores(NamedTuple):
    accuracy: float
    loss: float
    class_accuracy: list[float]  # nan for a class without test images


def mixed(images: Examples) -> Examples:
    """The same images in a fixed order that mixes the classes.

    Models with batch statistics see a batch's composition; sorted by class they would do worse.
    """
    order = torch.randperm(len(images.y), generator=Stream(0, ("test order",)).generator())
    return images.rows(order)


@dataclass(frozen=True)
class Exam:
    """A test set, cut into batches of a fixed order and size."""

    f: Model
    test: Examples
    transform: Transform | AsIs
    batch_size: int

    def __len__(self) -> int:
        return -(-len(self.test.y) // self.batch_size)

    @torch.inference_mode()
    def batch(self, w: Vector, i: int) -> tuple[float, list[int]]:
        """The sum of the i-th batch's cross entropies, and how many of each class it gets right."""
        part = slice(i * self.batch_size, (i + 1) * self.batch_size)
        y = self.test.y[part]
        logits = self.f(w, self.transform.plain(self.test.x[part])).logits
        loss = float(F.cross_entropy(logits, y, reduction="sum"))
        hits = torch.bincount(y[logits.argmax(1) == y].cpu(), minlength=self.f.classes)
        return loss, hits.tolist()

    def scores(self, batches: Iterable[tuple[float, Sequence[int]]]) -> Scores:
        """What all batches come to, summed in their order."""
        loss, hits = 0.0, [0] * self.f.classes
        for more, of_class in batches:
            loss += more
            hits = [h + n for h, n in zip(hits, of_class, strict=True)]
        counts = torch.bincount(self.test.y.cpu(), minlength=self.f.classes).tolist()
        n = len(self.test.y)
        return Scores(
            accuracy=sum(hits) / n,
            loss=loss / n,
            class_accuracy=[h / c if c else math.nan for h, c in zip(hits, counts, strict=True)],
        )


class Examiner(Protocol):
    """Who evaluates: sooner, or beside other work."""

    overlaps: bool  # whether evaluation goes on while other things are done

    def begin(self, w: Vector) -> None:
        """Start on these weights; the last ones have been asked for."""
        ...

    def scores(self) -> Scores:
        """What came of it; waits if need be."""
        ...


@dataclass
class AtOnce:
    """In this process, when it is asked."""

    exam: Exam
    overlaps: bool = False
    _w: Vector | None = None

    def begin(self, w: Vector) -> None:
        self._w = w

    def scores(self) -> Scores:
        assert self._w is not None, "nothing was begun"
        w = self._w
        return self.exam.scores(self.exam.batch(w, i) for i in range(len(self.exam)))


def evaluate(
    f: Model, w: Vector, test: Examples, transform: Transform | AsIs, batch_size: int
) -> Scores:
    """Accuracy in [0, 1] and mean cross entropy."""
    examiner = AtOnce(Exam(f, test, transform, batch_size))
    examiner.begin(w)
    return examiner.scores()
