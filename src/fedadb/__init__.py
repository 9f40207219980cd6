"""Federated learning across clients whose data differ, without forgetting.

What is exported here is loaded when it is first used, so that what needs no torch starts
without it.
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedadb.algorithms.fedacg import FedACG as FedACG
    from fedadb.algorithms.fedadb import FedADB as FedADB
    from fedadb.algorithms.fedasam import FedASAM as FedASAM
    from fedadb.algorithms.fedavg import FedAvg as FedAvg
    from fedadb.algorithms.feddecorr import FedDecorr as FedDecorr
    from fedadb.algorithms.feddyn import FedDyn as FedDyn
    from fedadb.algorithms.fedexp import FedExP as FedExP
    from fedadb.algorithms.fedgela import FedGELA as FedGELA
    from fedadb.algorithms.fedlmd import FedLMD as FedLMD
    from fedadb.algorithms.fedntd import FedNTD as FedNTD
    from fedadb.algorithms.fedprox import FedProx as FedProx
    from fedadb.algorithms.fedsol import FedSOL as FedSOL
    from fedadb.core.algorithm import Algorithm as Algorithm
    from fedadb.core.algorithm import Context as Context
    from fedadb.core.algorithm import Reply as Reply
    from fedadb.core.algorithm import Round as Round
    from fedadb.core.algorithm import Weights as Weights
    from fedadb.core.algorithm import average as average
    from fedadb.core.data import Batch as Batch
    from fedadb.core.data import Examples as Examples
    from fedadb.core.data import LocalPlan as LocalPlan
    from fedadb.core.data import Shard as Shard
    from fedadb.core.errors import BadInput as BadInput
    from fedadb.core.errors import Fault as Fault
    from fedadb.core.model import Domain as Domain
    from fedadb.core.model import Model as Model
    from fedadb.core.model import assemble as assemble
    from fedadb.core.stream import Stream as Stream
    from fedadb.core.transform import AsIs as AsIs
    from fedadb.core.transform import Transform as Transform
    from fedadb.core.vector import Vector as Vector
    from fedadb.engine.cohorts import OneByOne as OneByOne
    from fedadb.engine.evaluate import evaluate as evaluate
    from fedadb.engine.federate import Snapshot as Snapshot
    from fedadb.engine.federate import federate as federate
    from fedadb.engine.local import Learner as Learner
    from fedadb.experiment.config import Experiment as Experiment
    from fedadb.experiment.run import History as History
    from fedadb.experiment.run import run as run
    from fedadb.experiment.settings import Engine as Engine
    from fedadb.experiment.settings import Federation as Federation
    from fedadb.models.inception import Inception as Inception
    from fedadb.models.lenet import LeNet as LeNet
    from fedadb.models.resnet import ResNet18 as ResNet18
    from fedadb.partition.dirichlet import Dirichlet as Dirichlet
    from fedadb.partition.domains import ByDomain as ByDomain
    from fedadb.partition.file import File as File
    from fedadb.partition.iid import Iid as Iid
    from fedadb.partition.shards import Shards as Shards

__version__ = version("fedadb")

_HOMES = {
    "algorithms.fedacg": "FedACG",
    "algorithms.fedadb": "FedADB",
    "algorithms.fedasam": "FedASAM",
    "algorithms.fedavg": "FedAvg",
    "algorithms.feddecorr": "FedDecorr",
    "algorithms.feddyn": "FedDyn",
    "algorithms.fedexp": "FedExP",
    "algorithms.fedgela": "FedGELA",
    "algorithms.fedlmd": "FedLMD",
    "algorithms.fedntd": "FedNTD",
    "algorithms.fedprox": "FedProx",
    "algorithms.fedsol": "FedSOL",
    "core.algorithm": "Algorithm Context Reply Round Weights average",
    "core.data": "Batch Examples LocalPlan Shard",
    "core.errors": "BadInput Fault",
    "core.model": "Domain Model assemble",
    "core.stream": "Stream",
    "core.transform": "AsIs Transform",
    "core.vector": "Vector",
    "engine.cohorts": "OneByOne",
    "engine.evaluate": "evaluate",
    "engine.federate": "Snapshot federate",
    "engine.local": "Learner",
    "experiment.config": "Experiment",
    "experiment.run": "History run",
    "experiment.settings": "Engine Federation",
    "models.inception": "Inception",
    "models.lenet": "LeNet",
    "models.resnet": "ResNet18",
    "partition.dirichlet": "Dirichlet",
    "partition.domains": "ByDomain",
    "partition.file": "File",
    "partition.iid": "Iid",
    "partition.shards": "Shards",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedadb' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedadb.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
