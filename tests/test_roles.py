"""Which hyperparameters are worth a search, and in which range."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pytest
from annotated_types import Ge

from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedprox import FedProx
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.named_algorithms import algorithm_table
from fedadb.experiment.presets import RATES
from fedadb.roles import Searched, searched_fields

METHODS: Mapping[str, type[Any]] = {**ALGORITHMS, **SERVER_METHODS}
SEARCHED = [
    pytest.param(name, field, searched, id=f"{name}-{field}")
    for name, cls in METHODS.items()
    for field, searched in searched_fields(cls).items()
]


def test_all_methods_but_the_plain_ones_have_a_range() -> None:
    plain = {name for name, cls in METHODS.items() if not searched_fields(cls)}
    assert plain == {"fedavg", "fednova", "fedrod"}


@pytest.mark.parametrize(("name", "field", "searched"), SEARCHED)
def test_a_range_is_of_a_number_and_has_its_default_in_it(
    name: str, field: str, searched: Searched
) -> None:
    cls = METHODS[name]
    assert get_type_hints(cls)[field] is float
    (default,) = (f.default for f in fields(cls) if f.name == field)
    assert default is not MISSING
    assert searched.low <= default <= searched.high
    assert searched.low > 0 or searched.scale == "linear"


@pytest.mark.parametrize(("name", "field", "searched"), SEARCHED)
def test_both_ends_of_a_range_are_accepted(name: str, field: str, searched: Searched) -> None:
    for end in (searched.low, searched.high):
        experiment = Experiment.read({"algorithm": {"name": name, field: end}})
        assert algorithm_table(experiment.algorithm)[field] == end


def test_the_learning_rate_is_searched_around_the_defaults() -> None:
    (searched,) = searched_fields(LocalPlan).values()
    rates = [rate for methods in RATES.values() for rate in methods.values()]
    assert rates
    for lr in (searched.low, LocalPlan().lr, *rates, searched.high):
        assert searched.low <= lr <= searched.high
        assert Experiment.read({"local": {"lr": lr}}).local.lr == lr


@dataclass(frozen=True)
class Mine(FedProx):
    share: Annotated[float, Ge(0), Searched(0, 1, "linear")] = 0.5
    scale: Annotated[float | None, Searched(1, 10)] = 2.0
    other: Annotated[float, Searched(1, 10)] | None = None
    steps: int = 3


@dataclass(frozen=True)
class Fixed(FedProx):
    mu: float = 0.1


def test_an_algorithm_of_ones_own_has_its_ranges_and_those_it_inherits() -> None:
    assert searched_fields(Mine) == {
        "mu": searched_fields(FedProx)["mu"],
        "share": Searched(0, 1, "linear"),
        "scale": Searched(1, 10),
    }
    assert searched_fields(Fixed) == {}
    assert searched_fields(FedAvg) == {}


WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((1, 1), "low and high must be numbers, and low below high"),
    ((1, 0.1), "low and high must be numbers, and low below high"),
    ((0.1, math.nan), "low and high must be numbers, and low below high"),
    ((0.1, math.inf), "low and high must be numbers, and low below high"),
    ((0, 1), 'low must be above 0, or scale "linear"'),
    ((-1, 1), 'low must be above 0, or scale "linear"'),
    ((0.1, 1, "square"), "scale must be one of log, linear"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_range_is_refused_in_one_sentence(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Searched(*arguments)
    assert "\n" not in str(error.value)


def test_a_wrong_range_of_ones_own_algorithm_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_range.py").write_text(
        "from typing import Annotated\n"
        "from fedadb import FedAvg, Searched\n"
        "class Mine(FedAvg):\n"
        "    mu: Annotated[float, Searched(1, 0.1)] = 0.5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput) as error:
        Experiment.read({"algorithm": "wrong_range:Mine"})
    assert str(error.value) == (
        "algorithm = 'wrong_range:Mine': cannot be imported: Searched(low=1, high=0.1, "
        "scale='log'): low and high must be numbers, and low below high"
    )


@pytest.mark.parametrize(
    ("table", "usual", "other"),
    [
        ({"algorithm": {"name": "fedadb"}}, {"balanced_epoch": "local"}, "largest"),
        ({"local": {}}, {"augment": True}, False),
        ({"model": {"name": "resnet18"}}, {"width": 64}, 16),
    ],
)
def test_settings_that_were_added_later_leave_names_as_they_were(
    table: dict[str, Any], usual: dict[str, Any], other: Any
) -> None:
    ((part, given),) = table.items()
    ((key, _),) = usual.items()
    plain, as_usual, changed = (
        Experiment.read({part: {**given, **more}}) for more in ({}, usual, {key: other})
    )
    assert key not in plain.table()[part]
    assert as_usual == plain
    assert run_name(as_usual) == run_name(plain) != run_name(changed)
    assert changed.table()[part][key] == other
    assert Experiment.read(changed.table()) == changed
