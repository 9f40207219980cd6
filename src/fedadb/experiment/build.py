"""From an experiment to the objects that compute it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedadb import datasets
from fedadb.core.data import Examples, Shard, Splits
from fedadb.core.errors import BadInput
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.track import Track, unseen
from fedadb.core.transform import Transform
from fedadb.engine.evaluate import mixing
from fedadb.engine.tensorfile import raw_bytes
from fedadb.experiment.config import Experiment, Federation
from fedadb.partition import Labels, Rows


@dataclass(frozen=True)
class World:
    f: Model
    shards: Sequence[Shard]
    test: Examples
    domains: tuple[str, ...]  # of data of several origins
    test_domain: Tensor | None  # where each test image comes from
    transform: Transform
    classes: tuple[str, ...]
    counts: list[list[int]]  # n_{k,c}
    digest: str  # of the data and who holds them, so that a run does not go on with others

    @property
    def examples(self) -> int:
        """What all clients have together."""
        return sum(sum(held) for held in self.counts)


def build(e: Experiment, track: Track = unseen) -> World:
    """Load the data, deal them out and make the model."""
    device = pick_device(e.engine.device)
    if e.engine.precision == "bfloat16" and device.type == "cpu" and not has_bfloat16():
        raise BadInput(
            "engine.precision = 'bfloat16': this processor has no instructions for it, and would "
            "take many times as long; use float32"
        )
    if e.engine.backend == "ray" and device.type != "cpu":
        raise BadInput(
            f"engine.backend = 'ray': its actors train on CPUs, and engine.device = "
            f"{e.engine.device!r} is {device.type} here; set engine.device = 'cpu'"
        )
    splits = datasets.load(e.dataset, track)
    rows = partition(e, splits)
    train = splits.train.to(device)
    classes = len(splits.classes)
    shards = [Shard(train, torch.from_numpy(r).to(device), classes, splits.transform) for r in rows]
    f = model(e, splits.transform.domain(tuple(train.x.shape[1:])), classes, device)
    order = mixing(len(splits.test.y))
    return World(
        f,
        shards,
        test=splits.test.rows(order).to(device),
        domains=splits.domains.names if splits.domains else (),
        test_domain=splits.domains.test[order].to(device) if splits.domains else None,
        transform=splits.transform,
        classes=splits.classes,
        counts=held(splits, rows),
        digest=_digest(splits, rows),
    )


def model(e: Experiment, domain: Domain, classes: int, device: torch.device) -> Model:
    """The experiment's model with its first weights: the same wherever it is made."""
    rng = Stream(e.seed).at("model")
    with rng.at("body").seeded():
        body = e.model.body(domain.shape)
    f = assemble(body, e.algorithm.heads, domain, classes, rng)
    f = replace(f, precision=e.engine.precision)
    f.module.to(device)
    return f


def partition(e: Experiment, splits: Splits) -> list[Rows]:
    """Who holds which rows."""
    seed = e.seed if e.federation.partition_seed is None else e.federation.partition_seed
    domain = splits.domains.train.numpy() if splits.domains else None
    labels = Labels(splits.train.y.numpy(), domain)
    rng = Stream(seed).at("partition").numpy()
    return e.federation.partition.rows(labels, e.federation.clients, rng)


def held(splits: Splits, rows: list[Rows]) -> list[list[int]]:
    """n_{k,c}: how many rows of each class each client has."""
    labels, classes = splits.train.y.numpy(), len(splits.classes)
    return [np.bincount(labels[r], minlength=classes).tolist() for r in rows]


def _digest(splits: Splits, rows: list[Rows]) -> str:
    digest = hashlib.sha256()
    for tensor in (*splits.train, *splits.test, *map(torch.from_numpy, rows)):
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def sample(federation: Federation, seed: int, t: int) -> list[int]:
    """The clients of round t = 1, 2, …: the same whatever the algorithm."""
    if federation.sampling == "lineage":
        rng: Any = np.random.RandomState(t - 1)  # what the lineage draws from
    else:
        rng = Stream(seed).at("sampling", t).numpy()
    chosen: list[int] = rng.choice(federation.clients, federation.sampled, replace=False).tolist()
    return chosen


def has_bfloat16() -> bool:
    """Whether the processor computes in it; where that cannot be told, it is trusted to."""
    flags = Path("/proc/cpuinfo")
    return not flags.exists() or "bf16" in flags.read_text()


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))  # the meta device, for one, computes nothing
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"engine.device = {name!r}: is not on this machine") from error
    return device
