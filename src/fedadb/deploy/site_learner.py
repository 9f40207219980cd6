"""What a site trains with: its own copy of the experiment, the model, and its data."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.core.algorithm import broadcast_kind
from fedadb.core.data import DataSpec, Examples, Shard
from fedadb.core.errors import BadInput
from fedadb.core.packing import kind_of
from fedadb.datasets.own import load_own
from fedadb.deploy import refusals
from fedadb.deploy.refusals import Refusal
from fedadb.engine.evaluate import mixed_order
from fedadb.engine.local import Learner
from fedadb.experiment.build import (
    FederatedData,
    build_data,
    build_model,
    make_learner,
    pick_device,
)
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import parse_toml


class SiteLearner(NamedTuple):
    """The site's learner and data, and the types of what it receives and remembers."""

    learner: Learner[Any, Any, Any, Any]
    shard: Shard
    test: Examples | None  # None in simulations, where the server has all test data
    broadcast: type[Any]
    memory: Any

    def to_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: t.to(self.shard.rows.device) for name, t in tensors.items()}


@functools.lru_cache(maxsize=1)
def read_experiment(toml: str) -> Experiment:
    return Experiment.read(parse_toml(toml, "the experiment"))


@functools.lru_cache(maxsize=4)  # in a simulation, one process serves several sites
def load_site(toml: str, spec: DataSpec, data: str, partition: int) -> SiteLearner:
    e = read_experiment(toml)
    device = pick_device(e.engine.device)
    f = build_model(e, spec)
    test = None
    if data:
        try:
            train, test = load_own(data, spec, e.deployment.columns)
        except BadInput as error:
            raise Refusal(refusals.BAD_DATA, str(error)) from error
        test = test.rows(mixed_order(len(test.y))).to(device)
        rows = torch.arange(len(train.y), device=device)
        transform = e.local.preprocessing(spec.transform)
        shard = Shard(train.to(device), rows, len(spec.classes), transform)
    else:
        shard = _federated_data(toml).shards[partition]
    learner = make_learner(e, f)
    memory = kind_of(learner.first_memory(f.weights()))
    try:
        learner.require_usable(shard)
    except BadInput as error:
        raise Refusal(refusals.NO_DATA, str(error)) from error
    return SiteLearner(learner, shard, test, broadcast_kind(e.algorithm), memory)


@functools.lru_cache(maxsize=1)
def _federated_data(toml: str) -> FederatedData:
    return build_data(read_experiment(toml))
