"""Studies: their experiments, parts of them, and fewer rounds."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from fedadb.algorithms.feddecorr import FedDecorr
from fedadb.cli import estimate
from fedadb.cli.estimate import MeasuredCosts
from fedadb.cli.reproduce import STUDIES, find_study
from fedadb.cli.terminal import show_progress
from fedadb.core.data import DataSpec
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.optimizers import SGD
from fedadb.core.schedules import Exponential, Step
from fedadb.experiment import build
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.settings import Engine
from fedadb.experiment.study import read_study, scaled, select
from fedadb.kernels import library
from fedadb.progress import Progress

SIZES = {  # combinations of what each study varies; an experiment of two grids counts once
    "table1": 2 * 10 * 11 * 3,
    "convergence": 10 * 11 * 3,
    "trajectories": 7 * 11 * 3,
    "ablation": 3 * 4 * 3,
    "beta": 2 * 6 * 3,
    "hessian": 5,
    "landscape": 5,
    "embedding": 1,
    "privacy": 3,
    "pacs": 5 * 3,
    "hyperparameters": (2 * 4 + 2 * 3 + 3) * 3,
    "cag": (4 + 3 + 3 + 3) * 3,
}


@cache  # reading hundreds of experiments takes seconds
def experiments_of(name: str) -> Sequence[Experiment]:
    return read_study(STUDIES[name]).experiments


def test_a_table_of_the_paper_is_found_by_its_number() -> None:
    found = [find_study(f"table{number}").stem for number in range(1, 7)]
    assert found == ["table1", "convergence", "ablation", "beta", "hessian", "pacs"]
    with pytest.raises(BadInput, match="reproduce table9: is not known"):
        find_study("table9")


def test_every_study_is_known() -> None:
    message = r"reproduce tabel1: is not known; did you mean table1\? Possible are ablation, beta"
    with pytest.raises(BadInput, match=message):
        find_study("tabel1")
    assert STUDIES.keys() == SIZES.keys()
    assert not any(path.is_symlink() or path.parent.is_symlink() for path in STUDIES.values())


@pytest.mark.parametrize("name", SIZES)
def test_studies_have_all_their_experiments_once(name: str) -> None:
    assert len(experiments_of(name)) == SIZES[name]
    assert f"fedadb reproduce {name}\n" in STUDIES[name].read_text()


@pytest.mark.parametrize("name", ["table1", "convergence", "trajectories"])
def test_feddecorr_has_the_lambda_of_its_authors(name: str) -> None:
    """0.05 on CIFAR-100, 0.1 elsewhere."""
    found = {
        (e.dataset, e.algorithm.lam)
        for e in experiments_of(name)
        if isinstance(e.algorithm, FedDecorr)
    }
    datasets = {e.dataset for e in experiments_of(name)}
    assert found == {(d, 0.05 if d == "cifar100" else 0.1) for d in datasets}


def test_studies_of_the_same_runs_share_them() -> None:
    table1 = {run_name(e) for e in experiments_of("table1")}
    for name in ("convergence", "trajectories"):
        assert {run_name(e) for e in experiments_of(name)} <= table1


def test_a_part_of_a_study() -> None:
    cases = experiments_of("table1")
    only = ["dataset=organamnist", "algorithm=fedavg,fedadb", "scenario=cross-silo", "seed=0"]
    part = select(cases, only)
    assert [c.federation.clients for c in part] == [20, 20]
    assert [type(c.algorithm).__name__ for c in part] == ["FedAvg", "FedADB"]
    assert len(select(cases, ["alpha=0.05"])) == 2 * 11 * 3
    assert len(select(cases, ["clients=100"])) == len(cases) / 2
    assert len(select(experiments_of("convergence"), ["scenario=cross-device"])) == 330
    assert len(select(experiments_of("cag"), ["lam=1e-4"])) == 10 * 3
    assert len(select(experiments_of("cag"), ["lam=0"])) == 3
    assert len(select(experiments_of("ablation"), ["calibrate=false"])) == 3 * 3


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["dataset=mnist"], "--only dataset=mnist: the values of dataset here are svhn, cinic10"),
        (["color=red"], "no experiment here has a setting 'color'; possible are dataset, algo"),
        (["dataset"], "--only dataset: must be KEY=VALUE"),
        (["dataset=svhn", "alpha=0.5"], "no experiment meets all conditions"),
    ],
)
def test_parts_that_are_not_there_are_reported(only: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(experiments_of("table1"), only)


def test_with_fewer_rounds_the_learning_rate_falls_as_far() -> None:
    """A tenth of 1000 rounds: 0.99¹⁰ = 0.9044 per round, and still 0.99¹⁰⁰⁰ in the end."""
    whole = Experiment.read({"dataset": "cifar10"})
    short = scaled(whole, 0.1)
    assert short.rounds == 100
    assert isinstance(short.local.schedule, Exponential)
    assert short.local.schedule.decay == pytest.approx(0.9044, abs=1e-4)
    assert short.local.schedule.decay**100 == pytest.approx(0.99**1000)
    assert scaled(whole, 1) is whole
    assert scaled(whole, 1e-9).rounds == 1
    assert math.isclose(read_study(STUDIES["beta"], [], 0.1).experiments[0].rounds, 100)


def test_with_fewer_rounds_steps_and_warm_up_are_shorter() -> None:
    local = {"schedule": {"name": "step", "every": 50}, "warmup": 20}
    short = scaled(Experiment.read({"rounds": 200, "local": local}), 0.1)
    assert (short.rounds, short.local.warmup) == (20, 2)
    assert short.local.schedule == Step(every=5)


def test_a_study_may_vary_a_setting_by_its_earlier_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[experiment.local]\nmomentum = 0.5\n[[grid]]\n"local.lr_decay" = [0.9, 0.8]\n')
    found = [e.local for e in read_study(path).experiments]
    assert [plan.schedule for plan in found] == [Exponential(0.9), Exponential(0.8)]
    assert {plan.optimizer for plan in found} == {SGD(momentum=0.5)}
    for name in ("local.lr_decay", "local.schedule.decay"):
        with pytest.raises(BadInput, match=f"the study varies {name}; select with --only"):
            read_study(path, [f"{name}=0.7"])


def test_settings_hold_for_all_experiments_of_a_study() -> None:
    study = read_study(STUDIES["beta"], ["rounds=7", "local.lr=0.3"])
    assert {(c.rounds, c.local.lr) for c in study.experiments} == {(7, 0.3)}
    with pytest.raises(BadInput, match="--set seed=7: the study varies seed; select with --only"):
        read_study(STUDIES["beta"], ["seed=7"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 'x'\n[[grid]]\nseed=[0]", "titel is not a key of a study; did you mean title"),
        ("[[grid]]\nseed = 3", "seed = 3: must be a list of values"),
        ("[[grid]]\nseed = []", "must be a list of values"),
        ("[[grid]]\nseed = [0, 0]", "seed has 0 twice"),
        ("[grid]\nseed = [0]", r"grid must be \[\[grid\]\] tables"),
        ("vary = 3", "vary must be a table"),
        ("title = 'x'", r"has no \[\[grid\]\]"),
        ("[[grid]]\nlocal.lr = [0.1]", 'local.lr needs quotes: "local.lr"'),
        ("[[grid]]\nsead = [0]", "sead is not a setting"),
    ],
)
def test_wrong_studies_are_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_study(tmp_path / "study.toml")


def test_an_estimate_has_the_right_order_of_magnitude() -> None:
    e = Experiment.read({"algorithm": "fedavg"})
    costs = MeasuredCosts()
    assert not costs.known(e)
    costs.measure(e)
    assert 0.005 < costs.round_seconds(e) < 20


@pytest.mark.usefixtures("needs_kernels")
def test_costs_are_those_of_the_kernels_that_compute(request: pytest.FixtureRequest) -> None:
    """A cost that was measured on torch is not that of a machine with a compiler."""
    e = Experiment.read({"algorithm": "fedavg"})
    own = estimate.cost_key(e)
    torchs = estimate.cost_key(e.model_copy(update={"engine": Engine(kernels="torch")}))
    assert f"kernels = fedadb {library.name()}, " in own
    assert "kernels = torch, " in torchs
    request.getfixturevalue("no_compiler")
    assert estimate.cost_key(e) == torchs


def test_the_compilation_before_a_measurement_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Progress] = []

    def build_model(e: Experiment, spec: DataSpec, progress: Progress) -> Model:
        shown.append(progress)
        return build.build_model(e, spec)

    monkeypatch.setattr(estimate, "build_model", build_model)
    MeasuredCosts().measure(Experiment.read({"algorithm": "fedavg"}), show_progress)
    assert shown == [show_progress]


def test_costs_are_kept() -> None:
    e = Experiment.read({"algorithm": "fedavg"})
    MeasuredCosts().measure(e)
    again = MeasuredCosts()
    assert again.known(e)
    assert again.known(e.model_copy(update={"rounds": 7, "seed": 3}))  # the cost is the same
    assert not again.known(Experiment.read({"algorithm": "fedntd"}))
    assert not again.known(Experiment.read({"algorithm": "fedavg", "model": "resnet18"}))
    again.path.write_text("damaged")
    assert not MeasuredCosts().known(e)
