"""A client's data, and the plan by which it trains on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Generator, Tensor

from fedadb.core.look import AsIs, Look
from fedadb.core.stream import Stream


class Batch(NamedTuple):
    x: Tensor
    y: Tensor


class Images(NamedTuple):
    """Labelled images as they lie in memory: once, whatever the number of clients."""

    x: Tensor  # uint8, N × channels × height × width, unless they are taken AsIs
    y: Tensor  # int64, N

    def to(self, device: torch.device) -> "Images":
        return Images(self.x.to(device), self.y.to(device))


class Splits(NamedTuple):
    train: Images
    test: Images
    classes: tuple[str, ...]  # the name of each class
    look: Look


@dataclass(frozen=True)
class Shard:
    """The rows of one client in images that all clients share."""

    images: Images
    rows: Tensor
    classes: int
    look: Look | AsIs

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Tensor:
        return self.images.y[self.rows]

    @cached_property
    def counts(self) -> Tensor:
        """n_{k,c}: how many rows of each class."""
        return torch.bincount(self.labels, minlength=self.classes)

    def batch(self, which: Tensor, rng: Generator) -> Batch:
        """The rows at these positions of the shard, augmented."""
        rows = self.rows[which]
        return Batch(self.look.augmented(self.images.x[rows], rng), self.images.y[rows])


@dataclass(frozen=True)
class LocalPlan:
    """What a client does in its round: epochs of mini-batch SGD."""

    epochs: Annotated[int, Ge(1)] = 5
    batch_size: Annotated[int, Ge(1)] = 128
    lr: Annotated[float, Gt(0)] = 0.01
    lr_decay: Annotated[float, Gt(0), Le(1)] = 0.99  # after each round
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    weight_decay: Annotated[float, Ge(0)] = 1e-5

    def lr_at(self, t: int) -> float:
        """The learning rate of round t = 1, 2, …"""
        return self.lr * self.lr_decay ** (t - 1)

    def batches(self, data: Shard, rng: Stream) -> Iterator[Batch]:
        """Shuffled epochs; the last batch of an epoch holds what is left."""
        generator = rng.at("local").generator()
        for _ in range(self.epochs):
            order = torch.randperm(len(data), generator=generator)
            for which in torch.split(order, self.batch_size):
                yield data.batch(which.to(data.rows.device), generator)
