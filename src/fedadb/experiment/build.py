"""From an experiment to its federated data and its model."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedadb import datasets
from fedadb.core.data import DataSpec, Examples, Shard, Splits
from fedadb.core.errors import BadInput
from fedadb.core.model import Model, assemble
from fedadb.core.stream import Stream
from fedadb.engine.evaluate import TestSet, TestSetWithValidation, mixed_order
from fedadb.engine.local import Learner
from fedadb.experiment.config import Experiment
from fedadb.experiment.held_out import hold_out, remove_rows
from fedadb.experiment.settings import Engine, Federation
from fedadb.filters.mechanism import SimulatedNoise
from fedadb.kernels.selection import select_body, select_convolutions
from fedadb.partition import Labels, Rows
from fedadb.partition.protocol import class_counts
from fedadb.progress import Progress, no_progress
from fedadb.storage.tensorfile import raw_bytes


class DataSummary(NamedTuple):
    """What a run records about its data, whether they are on this machine or at sites."""

    classes: tuple[str, ...]
    counts: list[list[int]]  # n_{k,c}; for real sites, one number per site: its rows
    domains: tuple[str, ...]  # names of the domains or sites that the model is tested on
    digest: str  # of the data and their partition, so that no run resumes on other data
    only_sum: int | None = None  # N, if no client's own number of rows is known

    @property
    def examples(self) -> int:
        """N: the number of rows of all clients."""
        if self.only_sum is not None:
            return self.only_sum
        return sum(sum(counts) for counts in self.counts)


@dataclass(frozen=True)
class FederatedData:
    """The data of a simulation, and which client holds which rows."""

    spec: DataSpec
    train: Examples
    shards: Sequence[Shard]  # of client 0, 1, …
    test: Examples  # in an order that mixes the classes
    test_domain: Tensor | None  # the domain of each test row, if the data have several
    summary: DataSummary
    # each client's rows by cell of the test set: domain · C + class
    cell_counts: Sequence[Sequence[int]]
    validation: Examples | None = None  # all clients' rows for it, mixed as the test rows are

    def test_set(self, f: Model, batch_size: int) -> TestSet:
        return TestSet(f, self.test, self.spec.transform, batch_size, self.test_domain)

    def recorded_set(self, f: Model, batch_size: int) -> TestSet:
        """What each round is evaluated on: the test set and, if there are any, validation data."""
        if self.validation is None:
            return self.test_set(f, batch_size)
        transform = self.spec.transform
        validation = TestSet(f, self.validation, transform, batch_size)
        return TestSetWithValidation(
            f, self.test, transform, batch_size, self.test_domain, validation=validation
        )


def build_data(e: Experiment, progress: Progress = no_progress) -> FederatedData:
    """Load the experiment's dataset and partition it."""
    device = pick_device(e.engine.device)
    splits = datasets.load(e.dataset, progress)
    rows, held_out = split_rows(e, splits)
    train, positions = splits.train, rows
    if len(held_out):
        train, positions = remove_rows(splits.train, rows, held_out)
    train = train.to(device)
    classes, transform = len(splits.classes), e.local.preprocessing(splits.transform)
    order = mixed_order(len(splits.test.y))
    validation = torch.from_numpy(held_out)[mixed_order(len(held_out))]
    domains = splits.domains
    counts = cell_counts = class_counts(splits.train.y.numpy(), rows, classes)
    if domains:
        cells = (domains.train * classes + splits.train.y).numpy()
        cell_counts = class_counts(cells, rows, classes * len(domains.names))
    return FederatedData(
        splits.spec,
        train,
        [Shard(train, torch.from_numpy(r).to(device), classes, transform) for r in positions],
        test=splits.test.rows(order).to(device),
        test_domain=domains.test[order].to(device) if domains else None,
        summary=DataSummary(
            splits.classes,
            counts,
            domains.names if domains else (),
            _digest(splits, rows),
        ),
        cell_counts=cell_counts,
        validation=splits.train.rows(validation).to(device) if len(held_out) else None,
    )


def build_model(e: Experiment, spec: DataSpec, progress: Progress = no_progress) -> Model:
    """The experiment's model with its initial weights, which follow from the seed alone.

    `progress` reports the compilation of the kernels, if they are used for the first time.
    """
    device = pick_device(e.engine.device)
    if e.engine.precision == "bfloat16" and device.type == "cpu" and not has_bfloat16():
        raise BadInput(
            "engine.precision = 'bfloat16': this processor has no instructions for it and would "
            "be many times slower; use float32"
        )
    domain, rng = spec.transform.domain(spec.shape), Stream(e.seed).at("model")
    with rng.at("body").seeded():
        body = e.model.body(domain.shape)
    f = assemble(body, e.algorithm.heads, domain, len(spec.classes), rng)
    f.module.to(device)
    f = replace(f, precision=e.engine.precision)
    if not takes_own_kernels(e.engine, device):
        return f
    if fast := select_body(body, domain.shape, progress):
        return replace(f, fast_body=fast)
    select_convolutions(body, domain.shape, progress)
    return f


def takes_own_kernels(engine: Engine, device: torch.device) -> bool:
    """Whether a run may use our own kernels: they compute on a CPU, in float32, without vmap."""
    return (
        engine.kernels == "auto"
        and device.type == "cpu"
        and engine.precision == "float32"
        and engine.cohort != "stacked"
    )


def make_learner(e: Experiment, f: Model) -> Learner[Any, Any, Any, Any]:
    """What trains the experiment's clients."""
    return Learner(e.algorithm, f, e.local, e.filter)


def partition(e: Experiment, splits: Splits) -> list[Rows]:
    """The rows that each client trains on."""
    rows, _ = split_rows(e, splits)
    return rows


def split_rows(e: Experiment, splits: Splits) -> tuple[list[Rows], Rows]:
    """The rows that each client trains on, and all clients' rows for validation."""
    seed = e.seed if e.federation.partition_seed is None else e.federation.partition_seed
    y = splits.train.y.numpy()
    domain = splits.domains.train.numpy() if splits.domains else None
    n = len(y) - (published_rows(e.dataset, splits) if e.validation == "published" else 0)
    labels = Labels(y[:n], None if domain is None else domain[:n])
    rng = Stream(seed).at("partition").numpy()
    rows = e.federation.partition.rows(labels, e.federation.clients, rng)
    if not e.validation or e.validation == "published":
        return rows, np.arange(n, len(y))
    return hold_out(labels.y, rows, e.validation, Stream(seed).at("validation"))


def published_rows(dataset: Any, splits: Splits) -> int:
    """How many rows the dataset's publisher meant for validation."""
    if not splits.validation_rows:
        raise BadInput(
            f"validation = 'published': {dataset} has no validation rows of its own; give a share "
            "of the training rows, such as 0.1"
        )
    return splits.validation_rows


def _digest(splits: Splits, rows: list[Rows]) -> str:
    digest = hashlib.sha256()
    for tensor in (*splits.train, *splits.test, *map(torch.from_numpy, rows)):
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def sample_clients(federation: Federation, seed: int, t: int) -> list[int]:
    """The clients of round t = 1, 2, …: the same for every algorithm."""
    if federation.sampling == "reference":
        rng: Any = np.random.RandomState(t - 1)  # the generator of the reference code
    else:
        rng = Stream(seed).at("sampling", t).numpy()
    if federation.sampling == "poisson":
        return poisson_sample(federation, rng.random(federation.clients))
    chosen: list[int] = rng.choice(federation.clients, federation.sampled, replace=False).tolist()
    return chosen


@dataclass(frozen=True)
class SeededSource(SimulatedNoise):
    """Draws clients and noise by the experiment's seed."""

    federation: Federation
    secret = False

    def sample(self, t: int) -> list[int]:
        return sample_clients(self.federation, self.rng.seed, t)


def poisson_sample(federation: Federation, uniforms: NDArray[np.float64]) -> list[int]:
    """The clients whose number in [0, 1) is below the participation."""
    return np.flatnonzero(uniforms < federation.participation).tolist()


def has_bfloat16() -> bool:
    """Whether the processor computes in bfloat16; assumed true where the system does not say."""
    flags = Path("/proc/cpuinfo")
    return not flags.exists() or "bf16" in flags.read_text()


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))  # fails on the meta device, which computes nothing
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"engine.device = {name!r}: this machine has no such device") from error
    return device
