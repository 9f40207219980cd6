"""Studies: what they consist of, in part and in short."""

import math
from pathlib import Path

import pytest

from fedadb.cli.reproduce import STUDIES, find
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.cli.estimate import Estimator
from fedadb.experiment.study import read_study, scaled, select

SIZES = {  # combinations of what each varies; what two grids share is there once
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


def test_every_study_is_known() -> None:
    with pytest.raises(BadInput, match="reproduce tabel1: is not known; there is ablation, beta, "):
        find("tabel1")
    named = {path.stem for path in STUDIES.glob("*.toml") if "[[grid]]" in path.read_text()}
    assert named == SIZES.keys()


@pytest.mark.parametrize("name", SIZES)
def test_studies_have_all_their_experiments_once(name: str) -> None:
    study = read_study(find(name))
    assert len(study.experiments) == SIZES[name]
    assert f"fedadb reproduce {name}\n" in find(name).read_text()


def test_a_part_of_a_study() -> None:
    cases = read_study(find("table1")).experiments
    only = ["dataset=organamnist", "algorithm=fedavg,fedadb", "scenario=cross-silo", "seed=0"]
    part = select(cases, only)
    assert [c.federation.clients for c in part] == [20, 20]
    assert [type(c.algorithm).__name__ for c in part] == ["FedAvg", "FedADB"]
    assert len(select(cases, ["alpha=0.05"])) == 2 * 11 * 3
    assert len(select(cases, ["clients=100"])) == len(cases) / 2
    assert (
        len(select(read_study(find("convergence")).experiments, ["scenario=cross-device"])) == 330
    )
    assert len(select(read_study(find("cag")).experiments, ["lam=1e-4"])) == 10 * 3
    assert len(select(read_study(find("cag")).experiments, ["lam=0"])) == 3
    assert len(select(read_study(find("ablation")).experiments, ["calibrate=false"])) == 3 * 3


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["dataset=mnist"], "--only dataset=mnist: dataset is svhn, cinic10"),
        (["color=red"], "no experiment here has a setting 'color'"),
        (["dataset"], "--only dataset: must be KEY=VALUE"),
        (["dataset=svhn", "alpha=0.5"], "no experiment is all of that"),
    ],
)
def test_parts_that_are_not_there_are_told(only: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(read_study(find("table1")).experiments, only)


def test_in_short_the_learning_rate_falls_as_far() -> None:
    """A tenth of 1000 rounds: 0.99¹⁰ = 0.9044 a round, and 0.99¹⁰⁰⁰ in the end all the same."""
    whole = Experiment.read({"dataset": "cifar10"})
    short = scaled(whole, 0.1)
    assert short.rounds == 100
    assert short.local.lr_decay == pytest.approx(0.9044, abs=1e-4)
    assert short.local.lr_decay**100 == pytest.approx(0.99**1000)
    assert scaled(whole, 1) is whole
    assert scaled(whole, 1e-9).rounds == 1
    assert math.isclose(read_study(find("beta"), [], 0.1).experiments[0].rounds, 100)


def test_settings_hold_for_all_experiments_of_a_study() -> None:
    study = read_study(find("beta"), ["rounds=7", "local.lr=0.3"])
    assert {(c.rounds, c.local.lr) for c in study.experiments} == {(7, 0.3)}
    with pytest.raises(BadInput, match="--set seed=7: seed is varied here; --only chooses"):
        read_study(find("beta"), ["seed=7"])


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
        ("[[grid]]\nsead = [0]", "sead is not a key"),
    ],
)
def test_wrong_studies_are_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_study(tmp_path / "study.toml")


def test_an_estimate_is_of_the_right_size() -> None:
    e = Experiment.read({"algorithm": "fedavg"})
    seconds = Estimator().seconds(e)
    assert seconds is not None
    assert 0.005 < seconds < 20
    assert Estimator().seconds(Experiment.read({"dataset": "pacs"})) is None
