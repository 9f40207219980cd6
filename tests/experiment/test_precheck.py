"""Mistakes in settings are found without torch, and by the same rules as with it."""

import dataclasses
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.attacks import ATTACKS
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.optimizers import OPTIMIZERS, Optimizer
from fedadb.core.schedules import SCHEDULES
from fedadb.core.server_optimizers import SERVER_OPTIMIZERS
from fedadb.datasets import DATASETS, OWN
from fedadb.datasets.tensors import KINDS
from fedadb.experiment.config import Experiment
from fedadb.experiment.dataset_name import IN_MEMORY
from fedadb.experiment.declarations import (
    TABLES,
    Declaration,
    choices,
    dataset_names,
    declared,
    own_data_kinds,
)
from fedadb.experiment.precheck import precheck
from fedadb.filters import FILTERS
from fedadb.models import MODELS
from fedadb.partition import PARTITIONS
from fedadb.partition.file import File


def fields(cls: Any) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return [(f.name, hints[f.name], f.default) for f in dataclasses.fields(cls)]


REGISTRIES: dict[str, Mapping[str, type[Any]]] = {
    "algorithm": {**ALGORITHMS, **SERVER_METHODS},
    "model": MODELS,
    "federation.partition": PARTITIONS,
    "local.optimizer": OPTIMIZERS,
    "local.schedule": SCHEDULES,
    "server.optimizer": SERVER_OPTIMIZERS,
    "filter": FILTERS,
    "attack": ATTACKS,
}


@pytest.mark.parametrize("key", REGISTRIES)
def test_registries_are_those_of_the_package(key: str) -> None:
    found = {name: declaration.name for name, declaration in choices(key).items()}
    assert found == {name: cls.__name__ for name, cls in REGISTRIES[key].items()}


def test_datasets_are_those_of_the_package() -> None:
    assert dataset_names() == list(DATASETS)
    assert own_data_kinds() == list(OWN)
    assert IN_MEMORY == KINDS


@pytest.mark.parametrize(
    ("declaration", "real"),
    [
        pytest.param(choices(key)[name], cls, id=f"{key}-{name}")
        for key, registry in REGISTRIES.items()
        for name, cls in registry.items()
        if cls is not File  # its path has a validator, and it needs no torch
    ],
)
def test_declared_fields_are_those_of_the_class(declaration: Declaration, real: type[Any]) -> None:
    found = declared(declaration)
    assert found is not None
    assert fields(found) == fields(real)


def test_the_local_plan_is_declared_as_it_is() -> None:
    """But for its optimiser, which is checked by itself."""
    (plan,) = TABLES["local"]
    found = fields(declared(plan))
    assert ("optimizer", Any, None) in found
    others = [field for field in fields(LocalPlan) if field[1] is not Optimizer]
    assert [field for field in found if field[0] != "optimizer"] == others


WRONG: list[dict[str, Any]] = [
    {"round": 5},
    {"rounds": "many"},
    {"seed": -1},
    {"local": {"learning_rate": 1}},
    {"lr": 1},
    {"batchsize": 1},
    {"model": {"name": "resnet18", "norm": "layer"}},
    {"dataset": "digitz"},
    {"dataset": "tsv:rows"},
    {"dataset": "images:x"},
    {"dataset": 3},
    {"local": {"lr": "fast"}},
    {"local": {"lr": 0}},
    {"local": 3},
    {"local": {"momentum": 1}},
    {"local": {"momentum": 0.5, "optimizer": {"momentum": 0.5}}},
    {"local": {"lr_decay": 0}},
    {"local": {"clip": 0}},
    {"local": {"warmup": -1}},
    {"local": {"optimizer": "adm"}},
    {"local": {"optimizer": {"name": "adam", "beta1": 1}}},
    {"local": {"optimizer": {"name": "adam", "beta3": 1}}},
    {"local": {"optimizer": {"momentum": "much"}}},
    {"local": {"schedule": "cos"}},
    {"local": {"schedule": {"name": "cosine", "final": 2}}},
    {"local": {"schedule": "step"}},
    {"server": 3},
    {"server": {"optimiser": "adam"}},
    {"server": {"optimizer": "adm"}},
    {"server": {"optimizer": {"name": "yogi", "beta1": 1}}},
    {"server": {"optimizer": {"name": "sgd", "tau": 1}}},
    {"server": {"optimizer": {"lr": 1}}},
    {"algorithm": "fedavgg"},
    {"algorithm": {"name": "fedavg", "mu": 1}},
    {"algorithm": {"name": "fedadb", "steps": 0}},
    {"algorithm": {"name": "fedprox", "mu": "much"}},
    {"algorithm": {"name": "fedprox", "mu": -1}},
    {"algorithm": {"name": "fedavgm", "tau": 1}},
    {"algorithm": {"name": "fedadagrad", "beta2": 0.5}},
    {"algorithm": {"name": "fedadam", "beta2": 1}},
    {"algorithm": {"name": "fedyogi", "bias_correction": "yes"}},
    {"model": "lenet5"},
    {"model": {"name": "mlp", "hidden": [0]}},
    {"model": {"name": "mlp", "hidden": 5}},
    {"model": {"name": "cnn", "hidden": [5]}},
    {"federation": {"participation": 0}},
    {"federation": {"scenario": "cross-town"}},
    {"federation": {"partition": {"name": "dirichlet", "alpha": 0}}},
    {"engine": {"precision": "float16"}},
    {"engine": {"backend": "ray", "cohort": "stacked"}},
    {"deployment": {"wait": -1}},
    {"keep_broadcasts": [0]},
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_the_message_is_that_of_the_full_check(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as early:
        precheck(given)
    with pytest.raises(BadInput) as full:
        Experiment.read(given)
    assert str(early.value) == str(full.value)


def test_right_settings_pass() -> None:
    for name in (*ALGORITHMS, *SERVER_METHODS):
        precheck(Experiment(algorithm=name).table())
    for name in OPTIMIZERS:
        precheck(Experiment(local={"optimizer": name}).table())
        precheck({"local": {"optimizer": name}})
    for name in ("none", *SERVER_OPTIMIZERS):
        precheck(Experiment(server={"optimizer": name}).table())
        precheck({"server": {"optimizer": name}})
    precheck({"local": {"schedule": "my_module:Mine", "optimizer": "my_module:Mine"}})
    precheck({"server": {"optimizer": "my_module:Mine"}})
    precheck({"algorithm": "my_module:Mine", "model": {"name": "resnet18", "norm": "group"}})
    precheck({})


@pytest.mark.integration
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["local.lrr=1"], "local.lrr is not a setting"),
        (["dataset=digitz"], "dataset = 'digitz': is not known; did you mean digits"),
        (["local.lr=0"], "local.lr = 0: must be greater than 0"),
        (["algorithm=fedprox", "algorithm.mu=-1"], "algorithm.mu = -1: must be greater than or"),
    ],
)
def test_a_wrong_setting_is_answered_before_torch_is_imported(
    given: list[str], message: str
) -> None:
    arguments = ["run", *(word for one in given for word in ("--set", one))]
    code = (
        "import sys; from fedadb.cli import main\n"
        f"sys.argv[1:] = {arguments}\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert message in done.stderr
