"""A finished run, loaded to be looked into."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedadb.algorithms.fedadb import Sent
from fedadb.core.data import Batch, Examples
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import ROUNDS
from fedadb.core.packing import unpack
from fedadb.core.stream import Stream
from fedadb.progress import Progress, no_progress
from fedadb.core.vector import Vector
from fedadb.storage.records import read_records
from fedadb.storage.records import Record
from fedadb.storage.tensorfile import read_tensors
from fedadb.experiment.build import World
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import read_weights, read_world

IMAGES = 2000


@dataclass(frozen=True, eq=False)
class Subject:
    directory: Path
    experiment: Experiment
    world: World
    looked_at: Tensor  # the training rows whose loss is looked at
    progress: Progress = no_progress

    @cached_property
    def rounds(self) -> list[Record]:
        """What was recorded; at least one round."""
        found = read_records(self.directory / ROUNDS)
        if not found:
            raise BadInput(f"{self.directory} has no rounds yet: run it first")
        return found

    @cached_property
    def w(self) -> Vector:
        """The deployed weights."""
        return read_weights(self.directory, self.world)

    @property
    def train(self) -> Examples:
        """The training images, whoever holds them."""
        return self.world.shards[0].examples

    def require_images(self) -> None:
        if not self.world.shards:
            raise BadInput(f"{self.directory} was trained by sites: their images are not here")

    def members(self) -> Tensor:
        """The rows of the clients that took part in a round: what the model has seen."""
        seen = {k for line in self.rounds for k in line["clients"]}
        return torch.cat([self.world.shards[k].rows for k in sorted(seen)])

    @property
    def has_anchors(self) -> bool:
        return bool(getattr(self.experiment.algorithm, "generate", False))

    @cached_property
    def sent(self) -> dict[int, Sent]:
        """What was sent in the rounds whose anchors were kept, by round."""
        if not self.has_anchors:
            name = self.experiment.table()["algorithm"]["name"]
            raise BadInput(f"{self.directory}: {name} made no anchors; FedADB with generate does")
        found = {}
        for path in sorted(self.directory.glob("sent-*.safetensors")):
            tensors, _ = read_tensors(path, "delete it to do without it")
            sent = unpack(Sent, tensors, self.world.f.layout)
            x = self.world.f.domain.dequantise(sent.anchors.x)
            found[int(path.stem[5:])] = sent._replace(anchors=sent.anchors._replace(x=x))
        if not found:
            raise BadInput(
                f"{self.directory} kept no anchors: run it with algorithm.keep_anchors = 'auto' or "
                "the rounds to keep, such as [1, 50]"
            )
        return found

    def early_and_late(self) -> tuple[int, int]:
        """T1, the kept round next to a twentieth of all, and T2, the last one."""
        rounds = sorted(self.sent)
        if len(rounds) < 2:
            raise BadInput(
                f"{self.directory} kept the anchors of one round, and two are compared: "
                "algorithm.keep_anchors says which are kept"
            )
        twentieth = self.experiment.rounds / 20
        return min(rounds[:-1], key=lambda t: abs(t - twentieth)), rounds[-1]

    def pixels(self, x: Tensor) -> Tensor:
        """Normalised inputs as values in [0, 1]."""
        domain = self.world.f.domain
        return ((x - domain.low) / (domain.high - domain.low)).clamp(0, 1)


def load(directory: Path, images: int | None = None, progress: Progress = no_progress) -> Subject:
    """The run of a directory; of its training images so many are looked at, or 2 000 if it has."""
    e, world = read_world(directory, progress)
    if not world.shards:
        return Subject(directory, e, world, torch.zeros(0, dtype=torch.int64), progress)
    labels = world.shards[0].examples.y
    n = images or min(IMAGES, len(labels))
    looked_at = stratified(labels, n, range(world.f.classes), "training")
    return Subject(directory, e, world, looked_at, progress)


def stratified(labels: Tensor, n: int, classes: Sequence[int], what: str) -> Tensor:
    """As many rows or a few more, the same number of each class or all of it, mixed."""
    if n > len(labels):
        raise BadInput(f"--images {n}: there are {len(labels)} {what} images")
    per_class = -(-n // len(classes))
    chosen = []
    for c in classes:
        rows = torch.nonzero(labels == c).flatten()
        if not len(rows):
            raise BadInput(f"class {c} has no {what} images, and all classes are compared")
        order = torch.randperm(len(rows), generator=Stream(0).at("stratified", c).generator())
        chosen.append(rows[order[:per_class]])
    rows = torch.cat(chosen)
    return rows[torch.randperm(len(rows), generator=Stream(0).at("mixed").generator())]


def batches(subject: Subject, examples: Examples, rows: Tensor) -> list[Batch]:
    """The rows in batches of the run's own size, as they are: not augmented."""
    plain = subject.world.transform.normalise
    size = subject.experiment.local.batch_size
    return [Batch(plain(examples.x[part]), examples.y[part]) for part in torch.split(rows, size)]


@torch.no_grad()
def features(subject: Subject, w: Vector, given: list[Batch]) -> Tensor:
    return torch.cat([subject.world.f(w, batch.x).features for batch in given])
