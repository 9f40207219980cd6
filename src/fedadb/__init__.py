"""Federated learning across clients whose data differ, without forgetting.

What is exported here is loaded when it is first used, so that commands which need no torch
start without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedadb.algorithms.fedavg import FedAvg
    from fedadb.core.algorithm import (
        Algorithm,
        Context,
        Reply,
        Round,
        Weights,
        average,
    )
    from fedadb.core.data import Batch, Images, LocalPlan, Shard
    from fedadb.core.look import AsIs, Look
    from fedadb.core.model import Domain, Model, Output, assemble
    from fedadb.core.stream import Stream
    from fedadb.core.vector import Vector
    from fedadb.engine.cohorts import OneByOne
    from fedadb.engine.evaluate import evaluate
    from fedadb.engine.federate import Snapshot, federate
    from fedadb.engine.local import Learner
    from fedadb.experiment.config import Engine, Experiment, Federation
    from fedadb.experiment.run import History, run

_HOMES = {
    "algorithms.fedavg": ("FedAvg",),
    "core.algorithm": ("Algorithm", "Context", "Reply", "Round", "Weights", "average"),
    "core.data": ("Batch", "Images", "LocalPlan", "Shard"),
    "core.look": ("AsIs", "Look"),
    "core.model": ("Domain", "Model", "Output", "assemble"),
    "core.stream": ("Stream",),
    "core.vector": ("Vector",),
    "engine.cohorts": ("OneByOne",),
    "engine.evaluate": ("evaluate",),
    "engine.federate": ("Snapshot", "federate"),
    "engine.local": ("Learner",),
    "experiment.config": ("Engine", "Experiment", "Federation"),
    "experiment.run": ("History", "run"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Algorithm",
    "AsIs",
    "Batch",
    "Context",
    "Domain",
    "Engine",
    "Experiment",
    "FedAvg",
    "Federation",
    "History",
    "Images",
    "Learner",
    "LocalPlan",
    "Look",
    "Model",
    "OneByOne",
    "Output",
    "Reply",
    "Round",
    "Shard",
    "Snapshot",
    "Stream",
    "Vector",
    "Weights",
    "assemble",
    "average",
    "evaluate",
    "federate",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedadb' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedadb.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
