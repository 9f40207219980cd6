"""A client's data, and the plan by which it trains on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Generator, Tensor

from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs, Transform


class Batch(NamedTuple):
    x: Tensor
    y: Tensor


class Examples(NamedTuple):
    """Inputs and labels as they lie in memory: once, whatever the number of clients."""

    x: Tensor  # images: uint8, N × channels × height × width; anything, if taken AsIs
    y: Tensor  # int64, N

    def to(self, device: torch.device) -> "Examples":
        return Examples(self.x.to(device), self.y.to(device))

    def rows(self, which: Tensor | slice) -> "Examples":
        return Examples(self.x[which], self.y[which])


class Domains(NamedTuple):
    """Where each row comes from, in data of several origins."""

    names: tuple[str, ...]
    train: Tensor  # int64, a number for each training row
    test: Tensor


class Splits(NamedTuple):
    train: Examples
    test: Examples
    classes: tuple[str, ...]  # the name of each class
    transform: Transform
    domains: Domains | None = None


@dataclass(frozen=True)
class Shard:
    """The rows of one client in examples that all clients share."""

    examples: Examples
    rows: Tensor
    classes: int
    transform: Transform | AsIs

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Tensor:
        return self.examples.y[self.rows]

    @cached_property
    def counts(self) -> Tensor:
        """n_{k,c}: how many rows of each class."""
        return torch.bincount(self.labels, minlength=self.classes)

    def batch(self, which: Tensor, rng: Generator) -> Batch:
        """The rows at these positions of the shard, augmented."""
        rows = self.rows[which]
        return Batch(self.transform.augmented(self.examples.x[rows], rng), self.examples.y[rows])


@dataclass(frozen=True)
class LocalPlan:
    """What a client does in its round: epochs of mini-batch SGD."""

    epochs: Annotated[int, Ge(1)] = 5
    batch_size: Annotated[int, Ge(1), Le(1_000_000)] = 128
    lr: Annotated[float, Gt(0)] = 0.01
    lr_decay: Annotated[float, Gt(0), Le(1)] = 0.99  # after each round
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    weight_decay: Annotated[float, Ge(0)] = 1e-5

    def lr_at(self, t: int) -> float:
        """The learning rate of round t = 1, 2, …"""
        return self.lr * self.lr_decay ** (t - 1)

    def sizes(self, rows: int) -> list[int]:
        """How large each batch of a round is."""
        full, rest = divmod(rows, self.batch_size)
        return ([self.batch_size] * full + [rest] * (rest > 0)) * self.epochs

    def batches(self, data: Shard, rng: Stream) -> Iterator[Batch]:
        """Shuffled epochs; the last batch of an epoch holds what is left."""
        generator = rng.at("local").generator()
        for _ in range(self.epochs):
            order = torch.randperm(len(data), generator=generator)
            for which in torch.split(order, self.batch_size):
                yield data.batch(which.to(data.rows.device), generator)
