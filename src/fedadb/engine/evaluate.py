"""How good a model is on a test set."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs, Transform
from fedadb.core.vector import Vector


class Scores(NamedTuple):
    accuracy: float
    loss: float
    class_accuracy: list[float]  # nan for a class without test images
    domain_accuracy: Sequence[float] = ()  # of data of several origins


def mixing(n: int) -> Tensor:
    """A fixed order of n test images that mixes the classes.

    Models with batch statistics see a batch's composition; sorted by class they would do worse.
    """
    return torch.randperm(n, generator=Stream(0, ("test order",)).generator())


@dataclass(frozen=True)
class Exam:
    """A test set, cut into batches of a fixed order and size."""

    f: Model
    test: Examples
    transform: Transform | AsIs
    batch_size: int
    domain: Tensor | None = None  # where each image comes from: 0, 1, …

    def __len__(self) -> int:
        return -(-len(self.test.y) // self.batch_size)

    @cached_property
    def cells(self) -> Tensor:
        """Domain · C + class, of each image."""
        return self.test.y if self.domain is None else self.domain * self.f.classes + self.test.y

    @cached_property
    def counts(self) -> list[int]:
        """How many images each cell has, whole domains one after the other."""
        domains = 1 if self.domain is None else int(self.domain.max()) + 1
        return torch.bincount(self.cells.cpu(), minlength=domains * self.f.classes).tolist()

    @torch.inference_mode()
    def batch(self, w: Vector, i: int) -> tuple[float, list[int]]:
        """The sum of the i-th batch's cross entropies, and how many of each cell it gets right."""
        part = slice(i * self.batch_size, (i + 1) * self.batch_size)
        y = self.test.y[part]
        logits = self.f(w, self.transform.plain(self.test.x[part])).logits
        loss = float(F.cross_entropy(logits, y, reduction="sum"))
        right = self.cells[part][logits.argmax(1) == y]
        return loss, torch.bincount(right.cpu(), minlength=len(self.counts)).tolist()

    def scores(self, batches: Iterable[tuple[float, Sequence[int]]]) -> Scores:
        """What all batches come to, summed in their order."""
        loss, hits = 0.0, [0] * len(self.counts)
        for more, right in batches:
            loss += more
            hits = [h + n for h, n in zip(hits, right, strict=True)]
        classes = self.f.classes
        by_class = [share(hits[c::classes], self.counts[c::classes]) for c in range(classes)]
        domains = [slice(d, d + classes) for d in range(0, len(hits), classes)]
        return Scores(
            accuracy=share(hits, self.counts),
            loss=loss / len(self.test.y),
            class_accuracy=by_class,
            domain_accuracy=()
            if self.domain is None
            else [share(hits[of], self.counts[of]) for of in domains],
        )


def share(hits: Sequence[int], counts: Sequence[int]) -> float:
    return sum(hits) / sum(counts) if sum(counts) else math.nan


def in_and_out(class_accuracy: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """What a client's model knows of its own classes and of the others, as FedNTD weighs them.

    Σ_c p_c A_c and Σ_c (1 − p_c) / (C − 1) A_c, with p_c the share of the client's rows that are of
    class c. A class without test images counts as not known.
    """
    share = [n / sum(counts) for n in counts]
    known = [0.0 if math.isnan(a) else a for a in class_accuracy]
    own = sum(p * a for p, a in zip(share, known, strict=True))
    rest = sum((1 - p) * a for p, a in zip(share, known, strict=True)) / (len(counts) - 1)
    return own, rest


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
