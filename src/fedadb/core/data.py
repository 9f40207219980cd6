"""A client's data, and the plan by which it trains on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt, Le
from torch import Generator, Tensor

from fedadb.core.errors import BadInput
from fedadb.core.optimizers import SGD, Optimizer
from fedadb.core.schedules import Exponential, Schedule
from fedadb.core.stream import Stream
from fedadb.core.transform import Bounded, Preprocessing, Transform
from fedadb.roles import Added, Searched


class Batch(NamedTuple):
    """A mini-batch as the model sees it: inputs and labels."""

    x: Tensor
    y: Tensor


class Examples(NamedTuple):
    """Inputs and labels in memory, shared by all clients.

    Images have the shape N × channels × height × width and values from 0 to 255: uint8, or float32.
    All other inputs are float32 tensors whose first dimension is N. Labels are int64.
    """

    x: Tensor
    y: Tensor

    def to(self, device: torch.device) -> "Examples":
        return Examples(self.x.to(device), self.y.to(device))

    def rows(self, which: Tensor | slice) -> "Examples":
        """The selected rows."""
        return Examples(self.x[which], self.y[which])


class DomainLabels(NamedTuple):
    """For data from several domains (PACS: photos, paintings, …): the domain of each row."""

    names: tuple[str, ...]
    train: Tensor  # int64, one index into `names` per training row
    test: Tensor


@dataclass(frozen=True)
class DataSpec:
    """What a model needs to know of its data: class names, input shape, preprocessing."""

    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one input; of an image: channels, height, width
    transform: Transform | Bounded

    def require_images(self, purpose: str) -> Transform:
        """The transform of images; BadInput if the inputs are none."""
        if not isinstance(self.transform, Transform):
            shape = "×".join(map(str, self.shape))
            raise BadInput(f"{purpose} needs images, and these inputs have the shape {shape}")
        return self.transform


class Splits(NamedTuple):
    """A dataset: training rows, test rows, class names and preprocessing."""

    train: Examples
    test: Examples
    classes: tuple[str, ...]
    transform: Transform | Bounded
    domains: DomainLabels | None = None
    validation_rows: int = 0  # the last training rows, so many, were published for validation

    @property
    def spec(self) -> DataSpec:
        return DataSpec(self.classes, tuple(self.test.x.shape[1:]), self.transform)


@dataclass(frozen=True)
class Shard:
    """One client's rows of the examples that all clients share.

    ```python
    examples = fedadb.Examples(x=torch.randn(20, 10), y=torch.arange(20) % 4)
    rows = torch.tensor([0, 4, 7])
    shard = fedadb.Shard(examples, rows, classes=4, transform=fedadb.AsIs())
    ```
    """

    examples: Examples
    rows: Tensor
    classes: int  # of the whole federation, not only of this client
    transform: Preprocessing

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Tensor:
        return self.examples.y[self.rows]

    @cached_property
    def counts(self) -> Tensor:
        """n_{k,c}: the number of rows of each class."""
        return torch.bincount(self.labels, minlength=self.classes)

    def batch(self, which: Tensor, rng: Generator) -> Batch:
        """The rows at these positions of the shard, augmented."""
        rows = self.rows[which]
        x = self.examples.x.index_select(0, rows)  # in a tenth of the time of x[rows]
        return Batch(self.transform.augment(x, rng), self.examples.y[rows])


@dataclass(frozen=True)
class LocalPlan:
    """How a client trains in one round: epochs of mini-batches, and the step for each.

    ```python
    plan = fedadb.LocalPlan(epochs=1, batch_size=32, lr=0.05, optimizer=fedadb.SGD(momentum=0.5))
    plan.lr_at(t=3, total=10)  # 0.05 · 0.99²
    ```
    """

    epochs: Annotated[int, Ge(1)] = 5  # passes over a client's rows in one round
    # rows per step of training, and per batch of evaluation
    batch_size: Annotated[int, Ge(1), Le(1_000_000)] = 128
    # learning rate of the clients; the schedule and the warm-up multiply it
    lr: Annotated[float, Gt(0), Searched(0.003, 0.1)] = 0.01
    weight_decay: Annotated[float, Ge(0)] = 1e-5  # pull of all weights towards 0, per step
    optimizer: Optimizer = SGD()  # how a client's step follows from a gradient; new in each round
    schedule: Schedule = Exponential()  # how the learning rate changes from round to round
    # number of first rounds, in which the learning rate rises linearly
    warmup: Annotated[int, Ge(0)] = 0
    # largest norm of a gradient; auto: what the algorithm's authors use; none: any
    clip: Annotated[float, Gt(0)] | Literal["auto"] | None = "auto"
    # whether images are augmented as usual for their dataset: mirrored, cropped, …
    augment: Annotated[bool, Added()] = True

    def preprocessing(self, transform: Preprocessing) -> Preprocessing:
        """The data's preprocessing, with augmentation only if the plan has it."""
        if self.augment or not isinstance(transform, Transform):
            return transform
        return transform.without_augmentation()

    def lr_factor(self, t: int, total: int) -> float:
        """The learning rate of round t = 1, 2, …, total divided by `lr`."""
        factor = self.schedule.factor(t, total)
        if not factor > 0:
            raise BadInput(
                f"local.schedule: its factor in round {t} is {factor}; it must be above 0"
            )
        return factor if t >= self.warmup else factor * t / self.warmup

    def lr_at(self, t: int, total: int) -> float:
        """The learning rate of round t = 1, 2, …, total."""
        return self.lr * self.lr_factor(t, total)

    def sizes(self, rows: int) -> list[int]:
        """The size of each batch of a round, for a client with that many rows."""
        full, rest = divmod(rows, self.batch_size)
        return ([self.batch_size] * full + [rest] * (rest > 0)) * self.epochs

    def steps(self, rows: int) -> int:
        """The number of batches of a round, for a client with that many rows."""
        return self.epochs * -(-rows // self.batch_size)

    def batches(self, data: Shard, rng: Stream) -> Iterator[Batch]:
        """Shuffled epochs; the last batch of an epoch holds the remaining rows."""
        generator = rng.at("local").generator()
        for _ in range(self.epochs):
            order = torch.randperm(len(data), generator=generator)
            for which in torch.split(order, self.batch_size):
                yield data.batch(which.to(data.rows.device), generator)
