"""Mistakes in settings are found without torch, and by the same rules as with it."""

import dataclasses
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from fedadb.algorithms import ALGORITHMS
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.precheck import PACKAGE, algorithms, declared, models, precheck
from fedadb.models import MODELS


def fields(cls: Any) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return [(f.name, hints[f.name], f.default) for f in dataclasses.fields(cls)]


def test_registries_are_those_of_the_package() -> None:
    assert list(algorithms()) == list(ALGORITHMS)
    assert list(models()) == list(MODELS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_declared_fields_are_those_of_the_class(name: str) -> None:
    real = ALGORITHMS[name]
    found = declared(algorithms()[name], real.__name__)
    assert found is not None
    assert fields(found) == fields(real)


@pytest.mark.parametrize("name", ["lenet", "mlp", "cnn"])
def test_declared_fields_are_those_of_the_model(name: str) -> None:
    real = MODELS[name]
    found = declared(models()[name], real.__name__)
    assert found is not None
    assert fields(found) == fields(real)


def test_the_local_plan_is_declared_as_it_is() -> None:
    assert fields(declared(PACKAGE / "core" / "data.py", "LocalPlan")) == fields(LocalPlan)


WRONG: list[dict[str, Any]] = [
    {"round": 5},
    {"rounds": "many"},
    {"seed": -1},
    {"local": {"learning_rate": 1}},
    {"local": {"lr": "fast"}},
    {"local": 3},
    {"algorithm": "fedavgg"},
    {"algorithm": {"name": "fedavg", "mu": 1}},
    {"algorithm": {"name": "fedadb", "steps": 0}},
    {"algorithm": {"name": "fedprox", "mu": "much"}},
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
    for name in ALGORITHMS:
        precheck(Experiment(algorithm=name).table())
    precheck({"algorithm": "my_module:Mine", "model": {"name": "resnet18", "norm": "group"}})
    precheck({})


@pytest.mark.integration
def test_a_wrong_setting_is_answered_before_torch_is_imported() -> None:
    code = (
        "import sys; from fedadb.cli import main\n"
        "sys.argv[1:] = ['run', '--set', 'local.lrr=1']\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert "local.lrr is not a setting" in done.stderr
