"""Schedules, the warm-up, and the learning rate that follows from both."""

import subprocess
import sys
from typing import Any

import pytest

from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    Exponential,
    Schedule,
    Step,
    shortened,
)
from fedadb.experiment.config import Experiment


def factors(schedule: Schedule, total: int) -> list[float]:
    return [schedule.factor(t, total) for t in range(1, total + 1)]


def test_exponential_is_a_power() -> None:
    assert factors(Exponential(decay=0.9), 3) == [1, 0.9, 0.9**2]
    assert Exponential().factor(301, 1000) == 0.99**300


def test_constant_stays() -> None:
    assert factors(Constant(), 3) == [1, 1, 1]


def test_step_falls_after_every_so_many_rounds() -> None:
    assert factors(Step(every=2, decay=0.5), 5) == [1, 1, 0.5, 0.5, 0.25]


def test_cosine_begins_with_one_and_never_reaches_its_end() -> None:
    """(1 + cos(π/4)) / 2 = 0.853553 is a quarter of the way, and half of the way is ½."""
    assert factors(Cosine(), 4) == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)
    assert factors(Cosine(final=0.2), 4) == pytest.approx([1, 0.882843, 0.6, 0.317157], abs=1e-6)
    assert factors(Cosine(final=1.0), 4) == [1, 1, 1, 1]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_begins_with_the_plans_learning_rate_and_stays_positive(name: str) -> None:
    schedule = Experiment.read(
        {"local": {"schedule": {"name": name} | ({"every": 7} if name == "step" else {})}}
    ).local.schedule
    found = factors(schedule, 50)
    assert found[0] == 1
    assert all(0 < factor <= 1 for factor in found)
    assert found == sorted(found, reverse=True)


def test_warm_up_rises_linearly_and_multiplies_the_schedule() -> None:
    plan = LocalPlan(lr=0.4, schedule=Exponential(decay=0.5), warmup=4)
    assert [plan.lr_factor(t, 6) for t in range(1, 7)] == [
        *(1 / 4, 2 / 4 * 0.5, 3 / 4 * 0.25),
        *(0.125, 0.0625, 0.03125),
    ]
    assert plan.lr_at(1, 6) == 0.1


def test_without_warm_up_the_schedule_is_unchanged() -> None:
    for warmup in (0, 1):
        plan = LocalPlan(lr=0.1, warmup=warmup)
        assert [plan.lr_at(t, 9) for t in (1, 2, 9)] == [0.1, 0.1 * 0.99, 0.1 * 0.99**8]


@pytest.mark.parametrize("schedule", [Exponential(0.99), Step(100, 0.1), Cosine(0.1), Constant()])
def test_a_shortened_schedule_falls_as_far(schedule: Schedule) -> None:
    whole, short = schedule.factor(901, 1000), shortened(schedule, 10).factor(91, 100)
    assert short == pytest.approx(whole)


def test_a_shortened_step_takes_at_least_a_round() -> None:
    assert shortened(Step(every=3), 10) == Step(every=1)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ({"schedule": "cos"}, "local.schedule = 'cos': is not known; did you mean cosine?"),
        ({"schedule": "step"}, "local.schedule.every is missing"),
        (
            {"schedule": {"name": "step", "every": 0}},
            "local.schedule.every = 0: must be greater than or equal to 1",
        ),
        (
            {"schedule": {"name": "step", "every": 5, "decay": 2.0}},
            "local.schedule.decay = 2.0: must be less than or equal to 1",
        ),
        ({"schedule": {"decay": 0}}, "local.schedule.decay = 0: must be greater than 0"),
        (
            {"schedule": {"name": "cosine", "final": -0.1}},
            "local.schedule.final = -0.1: must be greater than or equal to 0",
        ),
        (
            {"schedule": {"name": "constant", "decay": 0.9}},
            "did you mean filter.decay? Possible here are none",
        ),
        ({"warmup": -1}, "local.warmup = -1: must be greater than or equal to 0"),
        ({"warmup": 2.5}, "local.warmup = 2.5: must be a whole number"),
        ({"clip": 0}, "local.clip = 0: must be greater than 0 or 'auto'"),
        ({"clip": "much"}, "local.clip = 'much': must be a number or 'auto'"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_in_one_sentence(
    local: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        Experiment.read({"local": local})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_schedules_need_no_torch() -> None:
    program = "import sys, fedadb.core.schedules; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
