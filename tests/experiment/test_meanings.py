"""Every setting has a meaning, and what is said of it is what the experiment does."""

import subprocess
import sys
import tomllib
from operator import attrgetter
from typing import Any

import pytest

from fedadb.experiment.config import Experiment
from fedadb.experiment.declarations import (
    CHOSEN,
    TABLES,
    choices,
    field_comment,
    setting_keys,
)
from fedadb.experiment.meanings import Setting, all_settings
from fedadb.experiment.presets import PRESETS, SCENARIOS
from fedadb.experiment.ranges import describe_values
from fedadb.experiment.settings import Federation
from fedadb.experiment.toml_tables import flatten

SETTINGS = all_settings()
IDS = [f"{setting.key}-{setting.owner}" for setting in SETTINGS]
# `dataset` is given in the test, a scenario stands for two others, and `step` needs one more.
NO_EXPERIMENT = {("dataset", ""), ("federation.scenario", ""), ("local.schedule.decay", "step")}
IN_PYTHON = {"images", "vectors"}  # data in memory have these defaults; no file can name them


def test_every_key_of_an_experiment_has_a_setting() -> None:
    table = Experiment(attack={"name": "sign_flip", "clients": 1}).table()
    keys = {key.removesuffix(".name") for key in flatten(table)}
    assert keys <= {setting.key for setting in SETTINGS}


def test_every_choice_has_its_settings() -> None:
    assert {setting.key for setting in SETTINGS} == set(setting_keys())


@pytest.mark.parametrize("setting", SETTINGS, ids=IDS)
def test_every_setting_has_a_meaning(setting: Setting) -> None:
    assert len(setting.meaning) > 10
    assert setting.values or setting.key in TABLES
    assert setting.read_by
    assert setting.affects


@pytest.mark.parametrize("key", CHOSEN)
def test_every_choice_has_a_summary(key: str) -> None:
    for declaration in choices(key).values():
        assert declaration.summary.endswith("."), declaration


def resolved(setting: Setting, dataset: str = "mnist") -> Any:
    """The default in the table of an experiment with this setting's owner."""
    table = setting.key.rpartition(".")[0]
    given: dict[str, Any] = {"dataset": dataset}
    if setting.owner:
        chosen: Any = {"name": setting.owner}
        for part in reversed(table.split(".")):
            chosen = {part: chosen}
        given |= chosen
    experiment = Experiment.read(given)
    value: Any = experiment.table()
    for part in setting.key.split("."):
        if part not in value:  # a newer setting, which tables have only if it is not its default
            return attrgetter(setting.key)(experiment)
        value = value[part]
    return value["name"] if isinstance(value, dict) and "name" in value else value


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, id=f"{setting.key}-{setting.owner}")
        for setting in SETTINGS
        if setting.default and (setting.key, setting.owner) not in NO_EXPERIMENT
        if setting.key.partition(".")[0]
        not in ("filter", "attack")  # of a list, and by default none
    ],
)
def test_defaults_are_those_of_an_experiment(setting: Setting) -> None:
    assert tomllib.loads(f"value = {setting.default}")["value"] == resolved(setting)


@pytest.mark.parametrize("dataset", [name for name in PRESETS if name not in IN_PYTHON])
def test_defaults_of_a_dataset_are_those_of_an_experiment(dataset: str) -> None:
    given = f"{dataset}:data" if dataset in ("npz", "folder", "csv") else dataset
    found = {s.key: s for s in SETTINGS if dataset in s.by_dataset and s.key != "local.lr"}
    assert found
    for key, setting in found.items():
        if key != "federation.scenario":
            stated = tomllib.loads(f"value = {setting.by_dataset[dataset]}")["value"]
            assert stated == resolved(setting._replace(owner=""), given)


def find_settings(key: str) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.key == key]


def test_a_setting_of_several_methods_is_explained_for_each() -> None:
    found = {setting.owner: setting.default for setting in find_settings("algorithm.lam")}
    assert found["fedadb"] == "0.0001"
    assert found["fedacg"] == "0.85"
    (lr,) = find_settings("local.lr")
    assert lr.searched is not None
    assert lr.by_dataset["digits"] == "0.003 to 0.1, by method"


def test_the_default_scenario_is_that_of_the_fields() -> None:
    (scenario,) = find_settings("federation.scenario")
    name = tomllib.loads(f"value = {scenario.default}")["value"]
    assert Federation(**SCENARIOS[name]) == Federation()


def test_values_in_words() -> None:
    (alpha,) = find_settings("federation.participation")
    assert alpha.values == "a number above 0 and up to 1"
    (workers,) = find_settings("engine.workers")
    assert workers.values == 'a whole number from 1 or "auto"'
    (rows,) = find_settings("deployment.rows")
    assert rows.values == "a table, each a whole number from 1"
    assert describe_values(bool | None) == "true or false or none"
    assert describe_values(Experiment) == ""


def test_meanings_need_no_torch() -> None:
    code = (
        "import sys; from fedadb.experiment.meanings import all_settings\n"
        "all_settings(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_field_has_the_comment_behind_it_or_above_it() -> None:
    lines = [
        "a: int = 1  # first",
        "# second,",
        "# in two lines",
        "b: int = (",
        "    2",
        ")",
        "c: int",
    ]
    assert field_comment(lines, 1, 1) == "first"
    assert field_comment(lines, 4, 6) == "second, in two lines"
    assert field_comment(lines, 7, 7) == ""
