import math
import pydoc
import tomllib
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedadb
from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddyn import FedDyn
from fedadb.algorithms.fedgela import FedGELA
from fedadb.algorithms.fedntd import FedNTD
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.optimizers import SGD, Adam, AdamW
from fedadb.core.schedules import Cosine, Exponential
from fedadb.core.server_optimizers import ServerAdam, ServerOptimizer, ServerYogi
from fedadb.core.vector import Vector
from fedadb.experiment.build import sample_clients
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import own_code
from fedadb.experiment.presets import RATES
from fedadb.experiment.settings import Federation, Server
from fedadb.experiment.study import compare
from fedadb.experiment.toml_tables import load_toml, override, renamed
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
    digits = read(algorithm="fedcog")
    assert (digits.rounds, digits.federation.clients, digits.local.lr) == (40, 20, 0.01)
    assert read(dataset="organamnist").rounds == 300
    assert read(dataset="organamnist").model == LeNet()
    mixed = read(local={"lr": 0.2}, rounds=3)
    assert (mixed.rounds, mixed.local.lr, mixed.local.batch_size) == (3, 0.2, 32)
    assert read(federation={"scenario": "cross-device"}).federation.clients == 100
    assert read(federation={"clients": 7}).federation == Federation(7, 0.2)


@pytest.mark.parametrize(("dataset", "rates"), RATES.items())
def test_a_method_has_the_learning_rate_that_was_found_for_it(
    dataset: str, rates: dict[str, float]
) -> None:
    for name, rate in rates.items():
        assert name in ALGORITHMS | SERVER_METHODS
        assert read(dataset=dataset, algorithm=name).local.lr == rate
        assert read(dataset=dataset, algorithm={"name": name}).local.lr == rate
        assert read(dataset=dataset, algorithm=name, local={"lr": 0.2}).local.lr == 0.2
    assert read(dataset="digits", algorithm=FedAvg()).local.lr == RATES["digits"]["fedavg"]
    assert read(dataset="digits").local.lr == RATES["digits"]["fedadb"]  # the default method
    assert read(dataset="mnist", algorithm="fedadb").local.lr == 0.01


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
        (
            {"local": {"optimizer": {"momentum": 1}}},
            "local.optimizer.momentum = 1: must be less than 1",
        ),
        ({"local": {"momentum": 1}}, "local.optimizer.momentum = 1: must be less than 1"),
        (
            {"dataset": "cifar11"},
            "dataset = 'cifar11': is not known; did you mean cifar10 or cifar100?",
        ),
        ({"dataset": "npz:"}, "npz:PATH or folder:PATH"),
        ({"dataset": 5}, "dataset: int is the wrong type; give a name"),
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
    zero = {"local": {"optimizer": {"momentum": 0.0}}}
    assert override({}, "local.optimizer.momentum=.0") == zero
    assert override({}, "local.momentum=.0") == zero
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
        (["algorithm=fedgela", "algorithm.clip=none"], FedGELA()),
    ],
)
def test_a_name_and_its_settings_come_in_any_order(assignments: list[str], expected: Any) -> None:
    given: dict[str, Any] = {}
    for assignment in assignments:
        given = override(given, assignment)
    experiment = Experiment.read(given)
    assert experiment.algorithm == expected
    assert Experiment.read(tomllib.loads(experiment.toml())) == experiment


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["local.optimizer=adam"], Adam()),
        (["local.optimizer=adam", "local.optimizer.beta1=0.5"], Adam(beta1=0.5)),
        (["local.optimizer.beta1=0.5", "local.optimizer=adam"], Adam(beta1=0.5)),
        (["local.optimizer={name='adamw', eps=1e-6}"], AdamW(eps=1e-6)),
        (["local.optimizer.nesterov=true"], SGD(nesterov=True)),
        (["local.optimizer={name='adam', beta1=0.5}", "local.optimizer=sgd"], SGD()),
        (["local.momentum=0.5"], SGD(momentum=0.5)),
        (["local.momentum=0.5", "local.optimizer.momentum=0.7"], SGD(momentum=0.7)),
        (["local.optimizer.momentum=0.7", "local.momentum=0.5"], SGD(momentum=0.5)),
    ],
)
def test_an_optimiser_is_set_like_an_algorithm(assignments: list[str], expected: Any) -> None:
    given: dict[str, Any] = {}
    for assignment in assignments:
        given = override(given, assignment)
    experiment = Experiment.read(given)
    assert experiment.local.optimizer == expected
    assert Experiment.read(tomllib.loads(experiment.toml())) == experiment


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([], None),
        (["server.optimizer=none"], None),
        (["server.optimizer=adam"], ServerAdam()),
        (["server.optimizer={name='adam', lr=0.1}"], ServerAdam(lr=0.1)),
        (["server.optimizer=yogi", "server.optimizer.initial=0"], ServerYogi(initial=0)),
        (["server.optimizer=adam", "server.optimizer.lr=0.1", "server.optimizer=none"], None),
    ],
)
def test_a_server_optimiser_is_set_like_an_algorithm(
    assignments: list[str], expected: ServerOptimizer | None
) -> None:
    given: dict[str, Any] = {}
    for assignment in assignments:
        given = override(given, assignment)
    experiment = Experiment.read(given)
    assert experiment.server == Server(expected)
    assert Experiment.read(tomllib.loads(experiment.toml())) == experiment


def test_optimisers_and_schedules_are_objects_or_tables_in_python() -> None:
    plan = LocalPlan(optimizer=AdamW(), schedule=Cosine(), warmup=3, clip=None)
    made = Experiment(local=plan, server=Server(ServerAdam()))
    assert made.local == plan
    assert Experiment.read(tomllib.loads(made.toml())) == made
    table = {"optimizer": AdamW(), "schedule": {"name": "cosine"}, "warmup": 3, "clip": "none"}
    same = Experiment(dataset="cifar10", local=table, server={"optimizer": ServerAdam()})
    assert (same.local, same.server) == (plan, made.server)
    with pytest.raises(BadInput, match=r"local\.optimizer\.beta1 = 2\.0: must be less than 1"):
        Experiment(local=LocalPlan(optimizer=Adam(beta1=2.0)))
    with pytest.raises(BadInput, match=r"server\.optimizer\.lr = -1: must be greater than 0"):
        Experiment(server=Server(ServerAdam(lr=-1)))


@dataclass(frozen=True)
class Signs:
    """An optimiser of one's own: steps of one length."""

    scale: Annotated[float, Gt(0)] = 1.0

    def start(self, w: Vector) -> tuple[()]:
        return ()

    def step(self, w: Vector, g: Vector, state: object, lr: float, weight_decay: float) -> None:
        w.flat.sub_(self.scale * lr * g.flat.sign())


def test_an_optimiser_of_ones_own_goes_by_its_module() -> None:
    name = f"{__name__}:Signs"
    experiment = read(local={"optimizer": {"name": name, "scale": 2.0}})
    assert experiment.local.optimizer == Signs(2.0)
    assert experiment.table()["local"]["optimizer"] == {"name": name, "scale": 2.0}
    assert list(own_code(experiment)) == [name]
    with pytest.raises(BadInput, match=r"local\.optimizer\.scale = 0: must be greater than 0"):
        read(local={"optimizer": {"name": name, "scale": 0}})


OLD = {"local": {"momentum": 0.5, "lr_decay": 0.9}}


def test_earlier_names_of_settings_still_work() -> None:
    experiment = read(**OLD)
    assert experiment.local.optimizer == SGD(momentum=0.5)
    assert experiment.local.schedule == Exponential(decay=0.9)
    assert "lr_decay" not in experiment.toml()
    assert Experiment(local={"lr_decay": 0.9}).local.schedule == Exponential(decay=0.9)
    with pytest.raises(BadInput, match=r"local\.momentum is not a setting"):
        read(**{"local.momentum": 0.5})  # a TOML key with a dot in quotes
    assert OLD == {"local": {"momentum": 0.5, "lr_decay": 0.9}}  # it is not modified


@pytest.mark.parametrize(
    ("below", "above", "decay"),
    [
        ("local.lr_decay=0.9", "local.schedule.decay=0.8", 0.8),
        ("local.schedule.decay=0.9", "local.lr_decay=0.8", 0.8),
        ("local.lr_decay=0.9", "local.lr_decay=0.8", 0.8),
    ],
)
def test_of_both_names_the_later_setting_holds(below: str, above: str, decay: float) -> None:
    experiment = Experiment.read(override(override({}, below), above))
    assert experiment.local.schedule == Exponential(decay)


@pytest.mark.parametrize(
    "local",
    [
        {"momentum": 0.5, "optimizer": {"momentum": 0.4}},
        {"momentum": 0.5, "optimizer": SGD(nesterov=True)},
    ],
)
def test_a_table_with_both_names_is_refused(local: dict[str, Any]) -> None:
    message = r"local\.momentum is the earlier name of local\.optimizer\.momentum, which is given"
    with pytest.raises(BadInput, match=message):
        read(local=local)


@pytest.mark.parametrize(
    ("given", "clip"),
    [
        ({"algorithm": {"name": "fedgela", "clip": 5.0}}, 5.0),
        ({"algorithm": {"name": "fedgela", "clip": 20.0}}, "auto"),  # the default was 20
        ({"algorithm": {"name": "fedgela", "clip": "none"}}, "none"),
        ({"algorithm": {"name": "feddyn", "clip": "none"}}, "auto"),
        ({"algorithm": {"name": "fedgela", "clip": 5.0}, "local": {"clip": "auto"}}, 5.0),
    ],
)
def test_clipping_moved_from_three_algorithms_to_the_plan(
    given: dict[str, Any], clip: object
) -> None:
    name = given["algorithm"]["name"]
    assert renamed(given) == {"algorithm": {"name": name}, "local": {"clip": clip}}
    own = {"algorithm": {"name": "my_module:Mine", "clip": 5.0}}
    assert renamed(own) == own
    both = {"algorithm": {"name": "fedgela", "clip": 5.0}, "local": {"clip": 4.0}}
    with pytest.raises(BadInput, match=r"algorithm\.clip is the earlier name of local\.clip"):
        renamed(both)
    assert override(both, "local.clip=3")["local"] == {"clip": 3}
    assert renamed(override(both, "local.clip=3"))["local"] == {"clip": 3}


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
class Unfinished(FedAvg, ABC):
    """Without one of its own hooks."""

    @abstractmethod
    def penalty(self) -> float: ...


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


def test_the_signature_in_the_help_has_settings_and_no_code() -> None:
    text = pydoc.plain(pydoc.render_doc(Experiment))
    assert "lambda" not in text
    assert "local: fedadb.core.data.LocalPlan = LocalPlan(" in text
