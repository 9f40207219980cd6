"""Search spaces: what is varied, and which values are tried."""

import math
from itertools import pairwise

import pytest

from fedadb.core.errors import BadInput
from fedadb.core.optimizers import Adam
from fedadb.experiment.config import Experiment
from fedadb.experiment.space import (
    declared_space,
    first_values,
    given_space,
    grid,
    points,
    require_possible,
    space_of,
    with_values,
)
from fedadb.roles import Searched


def experiment(algorithm: str = "fedprox", **settings: object) -> Experiment:
    return Experiment.read({"algorithm": algorithm, "validation": 0.1, **settings})


def test_the_learning_rate_and_the_declared_hyperparameters_are_searched() -> None:
    assert list(declared_space(experiment("fedavg"))) == ["local.lr"]
    assert list(declared_space(experiment("fedprox"))) == ["local.lr", "algorithm.mu"]
    assert "algorithm.lr" in declared_space(experiment("fedadam"))  # its server optimiser's


def test_points_are_evenly_spaced_on_the_scale_and_short() -> None:
    assert points(Searched(0.003, 0.1), 4) == [0.003, 0.01, 0.03, 0.1]
    assert points(Searched(0, 1, "linear"), 5) == [0, 0.25, 0.5, 0.75, 1]
    assert points(Searched(1, 8, "linear"), 3, whole=True) == [1, 4, 8]
    assert points(Searched(0.012, 0.018), 4) == [0.012, 0.014, 0.016, 0.018]
    assert points(Searched(0.5, 0.95, "linear"), 2) == [0.5, 0.95]  # the ends are exact
    assert points((0.5, "a"), 4) == [0.5, "a"]


def test_every_search_begins_with_the_same_learning_rates() -> None:
    """The middle ones come first, and other settings keep the experiment's values."""
    e = experiment("fedprox")
    firsts = first_values(e, declared_space(e), budget=8)
    assert [values["local.lr"] for values in firsts] == [0.01, 0.03, 0.003, 0.1]
    assert {values["algorithm.mu"] for values in firsts} == {0.01}
    assert first_values(e, declared_space(e), budget=2) == firsts[:2]


def test_a_grid_is_as_fine_as_the_budget_allows() -> None:
    e = experiment("fedprox")
    space = {"local.lr": Searched(0.01, 0.1), "algorithm.mu": Searched(0.001, 1)}
    assert len(grid(e, space, 9)) == 9
    assert len(grid(e, space, 15)) == 9
    assert grid(e, {"local.lr": (0.01, 0.02)}, 2) == [{"local.lr": 0.01}, {"local.lr": 0.02}]


def test_given_values_replace_the_declared_space() -> None:
    e = experiment("fedprox")
    space = given_space(["algorithm.mu=0.1..1", "local.epochs=1,2"], [e])
    assert space == {"algorithm.mu": Searched(0.1, 1), "local.epochs": (1, 2)}
    assert given_space(["algorithm.mu=0..1 linear"], [e]) == {
        "algorithm.mu": Searched(0, 1, "linear")
    }
    assert space_of(e, space) == space
    assert list(space_of(experiment("fedavg"), space)) == ["local.epochs"]  # it has no mu


def test_values_are_set_in_the_experiment() -> None:
    changed = with_values(experiment("fedprox"), {"local.lr": 0.5, "algorithm.mu": 0.25, "seed": 3})
    assert (changed.local.lr, changed.seed) == (0.5, 3)
    assert changed.table()["algorithm"] == {"name": "fedprox", "mu": 0.25}


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("local.lr", "must be KEY=LOW..HIGH"),
        ("local.lr=", "must be KEY=LOW..HIGH"),
        ("local.lrr=0.1..1", "local.lrr cannot be searched; did you mean local.lr"),
        ("seed=1,2", "seed cannot be searched; possible are"),
        ("rounds=10,20", "rounds cannot be searched"),
        ("validation=0,0.1", "validation cannot be searched"),
        ("engine.workers=1,2", "engine.workers cannot be searched"),
        ("algorithm.name=fedavg,fedadb", "algorithm.name cannot be searched"),
        ("local.lr=[1],{a=1}", "values must be numbers or words"),
        ("local.lr=0.1,,0.2", "values must be numbers or words"),
        ("local.lr=0.1..0.01", "low below high"),
        ("local.lr=0.1..0.1", "low below high"),
        ("local.lr=0..1", "low must be above 0"),
        ("local.lr=a..b", "both ends must be numbers"),
        ("local.lr=0.1..1 cubic", "the scale 'cubic' is not known"),
        ("local.lr=nan..1", "low and high must be numbers"),
    ],
)
def test_wrong_ranges_are_refused_in_a_sentence(assignment: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=r"--search") as raised:
        given_space([assignment], [experiment()])
    assert sentence in str(raised.value)


def test_a_budget_below_the_number_of_choices_is_refused() -> None:
    e = experiment("fedprox")
    with pytest.raises(
        BadInput, match=r"--budget 2: is below the number of choices; local.lr has 3"
    ):
        first_values(e, {"local.lr": (0.1, 0.2, 0.3)}, 2)
    with pytest.raises(BadInput, match=r"--budget 3: .* of FedProx has at least 4"):
        grid(e, declared_space(e), 3)


def test_values_outside_of_the_experiment_s_own_begin_inside_of_the_range() -> None:
    """A setting that is no number begins in the middle, and a whole number stays one."""
    space = given_space(
        ["local.lr=0.01..0.1", "local.clip=1..100", "local.epochs=10..20 linear"], [experiment()]
    )
    first, *_ = first_values(experiment(), space, 4)
    assert (first["local.clip"], first["local.epochs"]) == (10, 10)
    assert with_values(experiment(), first).local.epochs == 10


def test_a_range_that_the_experiment_refuses_is_found_at_its_ends() -> None:
    e = experiment("fedacg")
    require_possible(e, {"local.lr": Searched(0.01, 0.1), "algorithm.lam": Searched(0.5, 0.95)})
    with pytest.raises(BadInput, match=r"algorithm\.lam = 1\.5"):
        require_possible(e, {"local.lr": Searched(0.01, 0.1), "algorithm.lam": Searched(0.5, 1.5)})


def test_settings_that_are_fixed_are_not_searched() -> None:
    assert list(space_of(experiment("fedprox"), {}, {"local.lr"})) == ["algorithm.mu"]
    with pytest.raises(BadInput, match=r"FedAvg: there is nothing to search: local\.lr is fixed"):
        space_of(experiment("fedavg"), {}, {"local.lr"})
    with pytest.raises(BadInput, match=r"local\.lr is both set and searched"):
        space_of(experiment("fedavg"), {"local.lr": (0.1, 0.2)}, {"local.lr"})


def test_a_range_of_whole_numbers_has_whole_ends() -> None:
    space = space_of(experiment(), {"local.epochs": Searched(0.5, 5.5)})
    assert space == {"local.epochs": Searched(1, 5)}
    with pytest.raises(BadInput, match=r"local\.epochs: needs a range of whole numbers"):
        space_of(experiment(), {"local.epochs": Searched(0.1, 0.9)})


def test_an_optimiser_can_be_searched_by_name() -> None:
    space = given_space(["local.optimizer.name=sgd,adam"], [experiment()])
    assert with_values(experiment(), {"local.optimizer.name": "adam"}).local.optimizer == Adam()
    assert first_values(experiment(), space, 2)[0] == {"local.optimizer.name": "sgd"}


def test_a_setting_is_given_once_and_to_a_method_that_has_it() -> None:
    with pytest.raises(BadInput, match=r"local\.lr is given twice"):
        given_space(["local.lr=0.1,0.2", "local.lr=0.3"], [experiment()])
    with pytest.raises(BadInput, match=r"nothing to search: FedAvg has none of algorithm\.mu"):
        space_of(experiment("fedavg"), {"algorithm.mu": Searched(0.1, 1)})


def test_values_of_a_log_range_are_equally_far_apart() -> None:
    rates = points(Searched(0.001, 1), 7)
    ratios = [math.log10(b / a) for a, b in pairwise(rates)]
    assert all(abs(ratio - 0.5) < 0.03 for ratio in ratios)
