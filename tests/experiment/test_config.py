import math
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedadb
from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddyn import FedDyn
from fedadb.algorithms.fedgela import FedGELA
from fedadb.algorithms.fedntd import FedNTD
from fedadb.core.algorithm import Algorithm
from fedadb.core.errors import BadInput
from fedadb.experiment.build import sample_clients
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import Federation
from fedadb.experiment.study import compare
from fedadb.experiment.toml_tables import load_toml, override
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18
from fedadb.partition.dirichlet import Dirichlet
from fedadb.partition.iid import Iid

CONTRACT = """
dataset = "cifar10"
model   = "resnet18"
rounds  = 1000
seed    = 0
[federation]
clients = 100
participation = 0.05
partition = {name = "dirichlet", alpha = 0.1}
[local]
epochs = 5
batch_size = 128
lr = 0.01
lr_decay = 0.99
momentum = 0.9
weight_decay = 1e-5
[algorithm]
name = "fedadb"
[engine]
device = "auto"
workers = "auto"
precision = "float32"
"""


def read(**given: Any) -> Experiment:
    return Experiment.read(given)


def test_the_documented_file_reads_and_is_the_default_of_its_dataset() -> None:
    experiment = Experiment.read(tomllib.loads(CONTRACT))
    assert experiment.model == ResNet18(norm="batch")
    assert experiment == read(dataset="cifar10")


def test_what_is_written_reads_back_the_same() -> None:
    experiment = read(
        dataset="organamnist",
        model={"name": "resnet18", "norm": "group"},
        federation={"scenario": "cross-silo", "partition": "iid", "partition_seed": 3},
        local={"lr": 0.5},
        seed=7,
    )
    assert Experiment.read(tomllib.loads(experiment.toml())) == experiment


def test_a_dataset_suggests_what_is_not_said() -> None:
    digits = read()
    assert (digits.rounds, digits.federation.clients, digits.local.lr) == (40, 20, 0.05)
    assert read(dataset="organamnist").rounds == 300
    assert read(dataset="organamnist").model == LeNet()
    mixed = read(local={"lr": 0.2}, rounds=3)
    assert (mixed.rounds, mixed.local.lr, mixed.local.batch_size) == (3, 0.2, 32)
    assert read(federation={"scenario": "cross-device"}).federation.clients == 100
    assert read(federation={"clients": 7}).federation == Federation(7, 0.2)


def test_python_takes_the_objects_themselves() -> None:
    experiment = fedadb.Experiment(
        dataset="digits", algorithm=FedAvg(), federation=Federation(5, 1.0, Iid())
    )
    assert experiment.federation.sampled == 5
    assert experiment.local.batch_size == 32
    with pytest.raises(BadInput, match=r"alpha = -1"):
        fedadb.Experiment(federation=Federation(partition=Dirichlet(alpha=-1)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"round": 5}, "round is not a setting; did you mean rounds?"),
        (
            {"local": {"learning_rate": 1}},
            "local.learning_rate is not a setting; possible are epochs",
        ),
        ({"rounds": "many"}, "rounds = 'many': must be a whole number"),
        ({"rounds": 0}, "rounds = 0: must be greater than or equal to 1"),
        ({"rounds": 2.5}, "rounds = 2.5: must be a whole number"),
        ({"local": {"lr": "fast"}}, "local.lr = 'fast': must be a number"),
        ({"local": {"lr": float("nan")}}, "local.lr = nan: must be a finite number"),
        ({"local": 3}, "local = 3: must be a table"),
        ({"local": {"momentum": 1}}, "local.momentum = 1: must be less than 1"),
        (
            {"dataset": "cifar11"},
            "dataset = 'cifar11': is not known; did you mean cifar10 or cifar100?",
        ),
        ({"dataset": "npz:"}, "npz:PATH or folder:PATH"),
        ({"dataset": 5}, "dataset = 5: must be text"),
        ({"model": 5}, "model = 5: must be a name, or a table with a name"),
        ({"algorithm": {"name": [1]}}, "algorithm = [1]: is not known"),
        ({"federation": {"scenario": [1]}}, "federation.scenario = [1]: is not known"),
        ({"seed": {"x": 2}}, "seed = {'x': 2}: must be a whole number"),
        ({"model": "lenet5"}, "model = 'lenet5': is not known; did you mean lenet?"),
        (
            {"model": {"name": "resnet18", "norm": "layer"}},
            "model.norm = 'layer': must be 'batch' or 'group'",
        ),
        ({"algorithm": "fedavgg"}, "algorithm = 'fedavgg': is not known; did you mean fedavg"),
        (
            {"algorithm": {"name": "fedavg", "mu": 1}},
            "algorithm.mu is not a setting; there are none",
        ),
        ({"algorithm": "nowhere:Mine"}, "cannot be imported"),
        ({"algorithm": "fedadb.cli:run"}, "is not a dataclass"),
        (
            {"federation": {"partition": {"name": "dirichlet", "alpha": 0}}},
            "federation.partition.alpha = 0: must be greater than 0",
        ),
        ({"federation": {"partition": "dirichlett"}}, "did you mean dirichlet?"),
        (
            {"federation": {"participation": 0}},
            "federation.participation = 0: must be greater than 0",
        ),
        (
            {"federation": {"clients": 100, "participation": 0.001}},
            "selects none of 100 clients; it must be at least 0.01",
        ),
        ({"federation": {"scenario": "cross-town"}}, "cross-device, cross-silo"),
        ({"engine": {"precision": "float16"}}, "engine.precision = 'float16': must be 'float32'"),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_the_way_out(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        Experiment.read(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_on_the_command_line_reach_into_tables() -> None:
    given: dict[str, Any] = {"local": {"epochs": 2}}
    for assignment in ("local.lr=0.5", "model.norm=group", "dataset=cifar10", "seed=3"):
        given = override(given, assignment)
    experiment = Experiment.read(given)
    assert experiment.model == ResNet18(norm="group")
    assert (experiment.local.epochs, experiment.local.lr, experiment.seed) == (2, 0.5, 3)
    reached = Experiment.read(override({}, "federation.partition.alpha=2"))
    assert reached.federation.partition == Dirichlet(alpha=2)
    assert override({}, "local.lr=.01") == {"local": {"lr": 0.01}}
    assert override({}, "local.momentum=.0") == {"local": {"momentum": 0.0}}
    with pytest.raises(BadInput, match="must be KEY=VALUE"):
        override(given, "local.lr")
    with pytest.raises(BadInput, match="must be one line"):
        override(given, "rounds=1\nseed=4")


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["algorithm=fedntd", "algorithm.beta=0.5"], FedNTD(beta=0.5)),
        (["algorithm.beta=0.5", "algorithm=fedntd"], FedNTD(beta=0.5)),
        (["algorithm.eta=0.5"], FedADB(eta=0.5)),
        (["algorithm={name='fedntd', beta=0.5}", "algorithm=fedadb"], FedADB()),
        (["algorithm=fedgela", "algorithm.clip=none"], FedGELA(clip=None)),
    ],
)
def test_a_name_and_its_settings_come_in_any_order(assignments: list[str], expected: Any) -> None:
    given: dict[str, Any] = {}
    for assignment in assignments:
        given = override(given, assignment)
    experiment = Experiment.read(given)
    assert experiment.algorithm == expected
    assert Experiment.read(tomllib.loads(experiment.toml())) == experiment


def test_settings_of_an_algorithm_are_for_one_of_those_compared() -> None:
    experiments = compare(
        {"algorithm": {"name": "feddyn", "alpha": 0.3}}, ["fedavg", "feddyn"], [0, 1]
    )
    assert [e.algorithm for e in experiments] == [FedAvg()] * 2 + [FedDyn(alpha=0.3)] * 2
    (only,) = compare({"algorithm": {"alpha": 0.3}}, ["feddyn"], [0])
    assert only.algorithm == FedDyn(alpha=0.3)
    plain = compare({"algorithm": "fedadb"}, ["fedavg", "feddyn"], [0])  # nothing to lose
    assert [e.algorithm for e in plain] == [FedAvg(), FedDyn()]
    with pytest.raises(BadInput, match=r"algorithm\.alpha does not say for which algorithm"):
        compare({"algorithm": {"alpha": 0.3}}, ["fedavg", "feddyn"], [0])
    with pytest.raises(BadInput, match=r"algorithm\.eta is for fedadb; set algorithm\.name to one"):
        compare({"algorithm": {"name": "fedadb", "eta": 0.3}}, ["fedavg", "feddyn"], [0])


@dataclass(frozen=True)
class Unfinished(Algorithm[Any, Any, Any]):
    """Without its hooks."""


def test_python_raises_the_errors_of_the_command_line() -> None:
    with pytest.raises(BadInput, match="algorithm = 'FEDAVGG': is not known; did you mean fedavg"):
        Experiment(algorithm="FEDAVGG")
    with pytest.raises(BadInput, match="rounds = '3': must be a whole number"):
        Experiment(rounds="3")
    with pytest.raises(BadInput, match=r"algorithm: Can't instantiate abstract class Unfinished"):
        read(algorithm=f"{__name__}:Unfinished")
    for value, message in ((1, "must be a list"), ([1, "a"], "must be a whole number")):
        with pytest.raises(BadInput, match=message):
            read(keep_broadcasts=value)


def test_broadcasts_are_kept_by_round() -> None:
    def kept(**settings: Any) -> list[int]:
        e = Experiment(**settings)
        return [t for t in range(1, e.rounds + 1) if e.keeps_broadcast(t)]

    assert kept(rounds=5, keep_broadcasts=(1, 3)) == [1, 3]
    assert kept(rounds=100) == [1, 5, 50, 100]
    assert kept(rounds=1) == [1]
    with pytest.raises(BadInput, match=r"keep_broadcasts\.0 = 0: must be greater than or equal"):
        read(keep_broadcasts=[0])


def test_files_that_are_not_toml_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    with pytest.raises(BadInput, match="cannot be read"):
        load_toml(path)
    path.write_text("rounds = ")
    with pytest.raises(BadInput, match="is not TOML"):
        load_toml(path)


def test_sampling_follows_from_seed_and_round_alone() -> None:
    federation = Federation(100, 0.05)
    assert sample_clients(federation, 0, 3) == sample_clients(federation, 0, 3)
    assert sample_clients(federation, 0, 3) != sample_clients(federation, 1, 3)
    assert sample_clients(federation, 0, 3) != sample_clients(federation, 0, 4)
    everyone = [sample_clients(Federation(10, 0.5), 0, t) for t in range(1, 60)]
    assert all(len(set(chosen)) == 5 for chosen in everyone)
    assert set().union(*everyone) == set(range(10))


def test_reference_sampling_has_the_published_sequence() -> None:
    device = Federation(100, 0.05, sampling="reference")
    assert [sample_clients(device, 5, t) for t in (1, 2, 3)] == [
        [26, 86, 2, 55, 75],
        [80, 84, 33, 81, 93],
        [83, 30, 56, 24, 16],
    ]
    silo = Federation(20, 0.2, sampling="reference")
    assert [sample_clients(silo, 5, t) for t in (1, 2, 3)] == [
        [18, 1, 19, 8],
        [3, 16, 6, 10],
        [12, 4, 18, 0],
    ]


@dataclass(frozen=True)
class Flat:
    """A model of one's own."""

    width: Annotated[int, Ge(1)] = 3

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), self.width))


def test_a_class_of_ones_own_goes_by_its_module() -> None:
    name = f"{__name__}:Flat"
    experiment = read(model={"name": name, "width": 5})
    assert experiment.model == Flat(5)
    assert experiment.table()["model"] == {"name": name, "width": 5}
    with pytest.raises(BadInput, match=r"model\.width = 0: must be greater"):
        read(model={"name": name, "width": 0})


def test_a_module_that_fails_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="cannot be imported: division by zero"):
        read(algorithm="broken_module:Mine")


def test_ones_own_data_are_found_from_anywhere() -> None:
    assert read(dataset="npz:mine.npz").dataset == f"npz:{Path.cwd() / 'mine.npz'}"


@pytest.mark.parametrize(
    "value", ["9" * 5000, "[" * 100_000, "{a=" * 3000, '"""', "\x00", "1e400", "nan"]
)
def test_hostile_values_on_the_command_line_are_bad_input(value: str) -> None:
    with pytest.raises(BadInput):
        Experiment.read(override({}, f"rounds={value}"))


@given(st.text(max_size=30))
def test_any_assignment_is_a_table_or_bad_input(text: str) -> None:
    with suppress(BadInput):
        Experiment.read(override({}, text))


def test_hostile_files_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "hostile.toml"
    for text in ("x = " + "[" * 100_000, "rounds = " + "9" * 5000, "\x00", "a.b.c = 1\na = 2"):
        path.write_text(text)
        with pytest.raises(BadInput, match="is not TOML"):
            load_toml(path)
