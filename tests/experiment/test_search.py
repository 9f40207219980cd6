"""A search: trials are runs, judged on validation data; a killed search resumes."""

import json
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import fedadb
from fedadb.core.errors import BadInput, Diverged, Fault
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.search import (
    SearchPlan,
    find_settings,
    search_path,
    tuned,
    winner_file,
)
from fedadb.experiment.space import Space
from fedadb.roles import Searched
from fedadb.storage.records import Record, append_record, read_records
from fedadb.storage.searches import Search, read_search

RATES: Space = {"local.lr": Searched(0.003, 0.1)}
ROUNDS = 9


def experiment(**settings: Any) -> Experiment:
    return Experiment.read(
        {"algorithm": "fedprox", "rounds": ROUNDS, "validation": 0.1, **settings}
    )


class Trainer:
    """Writes runs whose validation accuracy is a function of the learning rate."""

    def __init__(self, accuracy: Callable[[float, int], float]) -> None:
        self.accuracy = accuracy
        self.trained: list[tuple[float, int]] = []  # learning rate and round

    def __call__(self, e: Experiment, directory: Path) -> Generator[Record]:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "experiment.toml").write_text(e.toml())
        for t in range(len(read_records(directory / "rounds.jsonl")) + 1, e.rounds + 1):
            accuracy = self.accuracy(e.local.lr, t)
            self.trained.append((e.local.lr, t))
            yield append_record(
                directory / "rounds.jsonl",
                {
                    "round": t,
                    # The test accuracy is the opposite: a search that looked at it would fail.
                    "accuracy": 1 - accuracy,
                    "validation_accuracy": accuracy,
                    "loss": 1.0,
                    "class_accuracy": [0.5, 0.5],
                    "clients": [0],
                    "lr": e.local.lr,
                    "seconds": 0.1,
                },
            )
        (directory / "model.safetensors").touch()


def finished(*arguments: Any) -> Search:
    *_, search = find_settings(*arguments)
    return search


def peak(lr: float, t: int) -> float:
    """Best at 0.03, and rising with the rounds."""
    return (0.9 - 5 * abs(lr - 0.03)) * t / ROUNDS


def test_the_best_settings_are_chosen_on_validation_data(tmp_path: Path) -> None:
    e = experiment()
    search = finished(e, RATES, SearchPlan(4, pruner="none"), tmp_path, Trainer(peak))
    assert [trial.values["local.lr"] for trial in search.trials] == [0.01, 0.03, 0.003, 0.1]
    assert {trial.state for trial in search.trials} == {"finished"}
    assert search.best is not None
    assert search.best.values == {"local.lr": 0.03}
    # the mean of the best five of nine rounds
    assert search.best.score == pytest.approx(0.9 * (5 + 6 + 7 + 8 + 9) / 5 / 9)
    assert tuned(e, search).local.lr == 0.03


def test_the_winner_is_a_file_that_can_be_run(tmp_path: Path) -> None:
    e = experiment()
    finished(e, RATES, SearchPlan(2), tmp_path, Trainer(peak))
    path = winner_file(search_path(tmp_path, e, RATES))
    winner = Experiment.read(tomllib.loads(path.read_text()))
    assert winner == tuned(e, read_search(search_path(tmp_path, e, RATES)))
    assert path.read_text().startswith("# Chosen among 2 runs: local.lr = 0.03.\n")


def test_trials_are_ordinary_runs_which_a_run_shares(tmp_path: Path) -> None:
    e = experiment()
    search = finished(e, RATES, SearchPlan(3), tmp_path, Trainer(peak))
    assert search.best is not None
    assert search.best.run == run_name(tuned(e, search))
    assert {trial.run for trial in search.trials} == {
        p.name for p in tmp_path.iterdir() if p.name != "searches"
    }


def test_after_the_first_values_tpe_looks_near_the_good_ones(tmp_path: Path) -> None:
    """It never tries a value twice, and more of its trials are good than random ones would be."""
    search = finished(experiment(), RATES, SearchPlan(16, pruner="none"), tmp_path, Trainer(peak))
    rates = [trial.values["local.lr"] for trial in search.trials]
    assert len(set(rates)) == 16
    assert all(0.003 <= rate <= 0.1 for rate in rates)
    assert sum(0.015 < rate < 0.06 for rate in rates[4:]) >= 7  # 40 % of the log range: 5 of 12
    assert search.best is not None
    assert abs(search.best.values["local.lr"] - 0.03) < 0.004


@pytest.mark.parametrize("pruner", ["median", "halving"])
def test_trials_that_are_far_behind_are_stopped(tmp_path: Path, pruner: str) -> None:
    trainer = Trainer(peak)
    search = finished(experiment(), RATES, SearchPlan(4, pruner=pruner), tmp_path, trainer)
    stopped = [trial for trial in search.trials if trial.state == "stopped"]
    assert stopped
    for trial in stopped:
        assert trial.rounds < ROUNDS
        assert (trial.values["local.lr"], trial.rounds + 1) not in trainer.trained
    assert search.best is not None
    assert search.best.values == {"local.lr": 0.03}


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
@pytest.mark.parametrize("pruner", ["median", "halving", "none"])
@pytest.mark.parametrize("kill_after", [1, 12, 25, 31])
def test_a_killed_search_resumes_and_trains_nothing_twice(
    tmp_path: Path, sampler: str, pruner: str, kill_after: int
) -> None:
    e, plan = experiment(), SearchPlan(6, sampler, pruner)
    whole = Trainer(peak)
    expected = finished(e, RATES, plan, tmp_path / "whole", whole)

    def killed(lr: float, t: int) -> float:
        if len(first.trained) == kill_after:
            raise KeyboardInterrupt
        return peak(lr, t)

    first = Trainer(killed)
    if kill_after < len(whole.trained):
        with pytest.raises(KeyboardInterrupt):
            finished(e, RATES, plan, tmp_path / "killed", first)
    second = Trainer(peak)
    assert finished(e, RATES, plan, tmp_path / "killed", second) == expected
    assert first.trained + second.trained == whole.trained
    third = Trainer(peak)
    assert finished(e, RATES, plan, tmp_path / "killed", third) == expected
    assert not third.trained


def test_a_lost_search_file_costs_no_training(tmp_path: Path) -> None:
    e, plan = experiment(), SearchPlan(7)
    expected = finished(e, RATES, plan, tmp_path, Trainer(peak))
    search_path(tmp_path, e, RATES).unlink()
    again = Trainer(peak)
    assert finished(e, RATES, plan, tmp_path, again) == expected
    assert not again.trained


def test_a_search_ends_when_all_choices_were_tried(tmp_path: Path) -> None:
    space = {"local.lr": (0.01, 0.03)}
    search = finished(experiment(), space, SearchPlan(8), tmp_path, Trainer(peak))
    assert [trial.values["local.lr"] for trial in search.trials] == [0.01, 0.03]
    assert read_search(search_path(tmp_path, experiment(), RATES)).complete


def test_a_smaller_budget_forgets_nothing(tmp_path: Path) -> None:
    e = experiment()
    large = finished(e, RATES, SearchPlan(4, pruner="none"), tmp_path, Trainer(peak))
    small = finished(e, RATES, SearchPlan(1, pruner="none"), tmp_path, Trainer(peak))
    assert small.best is not None
    assert small.best.values == {"local.lr": 0.01}
    assert read_search(search_path(tmp_path, e, RATES)).trials == large.trials


def test_a_search_does_not_depend_on_the_rate_of_the_experiment(tmp_path: Path) -> None:
    """A new default of the learning rate does not start a search anew."""
    first = finished(experiment(), RATES, SearchPlan(2), tmp_path, Trainer(peak))
    again = Trainer(peak)
    other = experiment(local={"lr": 0.7})
    assert finished(other, RATES, SearchPlan(2), tmp_path, again).trials == first.trials
    assert not again.trained


def test_a_larger_budget_continues_the_search(tmp_path: Path) -> None:
    e = experiment()
    small = finished(e, RATES, SearchPlan(4), tmp_path, Trainer(peak))
    more = Trainer(peak)
    large = finished(e, RATES, SearchPlan(6), tmp_path, more)
    assert large.trials[:4] == small.trials
    assert len(large.trials) == 6
    assert {lr for lr, _ in more.trained} == {t.values["local.lr"] for t in large.trials[4:]}


def test_trials_that_diverge_are_not_chosen(tmp_path: Path) -> None:
    def diverging(lr: float, t: int) -> float:
        if lr > 0.02 and t == 3:
            raise Diverged("client 3 diverged")
        return lr * 9

    search = finished(experiment(), RATES, SearchPlan(5), tmp_path, Trainer(diverging))
    again = Trainer(peak)  # it is known which trials diverge: nothing is trained again
    assert finished(experiment(), RATES, SearchPlan(5), tmp_path, again) == search
    assert not again.trained
    states = {trial.values["local.lr"]: trial.state for trial in search.trials}
    assert (states[0.03], states[0.1]) == ("diverged", "diverged")
    assert search.best is not None
    assert search.best.values["local.lr"] <= 0.02


def test_a_search_whose_every_trial_diverged_says_so_and_keeps_what_it_tried(
    tmp_path: Path,
) -> None:
    def diverging(lr: float, t: int) -> float:
        raise Diverged("client 3 diverged")

    e = experiment()
    with pytest.raises(BadInput, match="no trial of FedProx finished: 3 of 3 diverged; search"):
        finished(e, RATES, SearchPlan(3), tmp_path, Trainer(diverging))
    kept = read_search(search_path(tmp_path, e, RATES))
    assert [trial.state for trial in kept.trials] == ["diverged"] * 3


def test_other_failures_end_the_search_and_it_resumes(tmp_path: Path) -> None:
    def full(lr: float, t: int) -> float:
        raise Fault("the disk is full")

    e = experiment()
    with pytest.raises(Fault, match="the disk is full"):
        finished(e, RATES, SearchPlan(2), tmp_path, Trainer(full))
    assert finished(e, RATES, SearchPlan(2), tmp_path, Trainer(peak)).best is not None


@pytest.mark.parametrize(
    ("space", "plan", "what"),
    [
        ({"local.lr": Searched(0.01, 0.1)}, SearchPlan(2), "its space is"),
        (RATES, SearchPlan(2, "grid"), "its sampler is tpe, and grid here"),
        (RATES, SearchPlan(2, "tpe", "none"), "its pruner is median, and none here"),
    ],
)
def test_a_search_that_was_changed_is_refused_and_nothing_is_lost(
    tmp_path: Path, space: Space, plan: SearchPlan, what: str
) -> None:
    e = experiment()
    finished(e, RATES, SearchPlan(2), tmp_path, Trainer(peak))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(BadInput, match="is another search for this experiment") as raised:
        finished(e, space, plan, tmp_path, Trainer(peak))
    assert what in str(raised.value)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("settings", "plan", "sentence"),
    [
        ({"validation": 0.0}, SearchPlan(4), "validation = 0: .* it must be above 0"),
        ({}, SearchPlan(0), "--budget 0: must be a whole number, and at least 1"),
        ({}, SearchPlan(2.5), "--budget 2.5: must be a whole number"),  # type: ignore[arg-type]
        ({}, SearchPlan(4, "random"), "--sampler random: is not known; possible are tpe, grid"),
        ({}, SearchPlan(4, pruner="all"), "--pruner all: is not known"),
    ],
)
def test_an_impossible_search_is_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], plan: SearchPlan, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        finished(experiment(**settings), RATES, plan, tmp_path, Trainer(peak))
    assert not list(tmp_path.iterdir())


def test_values_that_the_experiment_refuses_are_found_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"local\.epochs = 0"):
        finished(experiment(), {"local.epochs": (1, 0)}, SearchPlan(2), tmp_path, Trainer(peak))
    assert not list(tmp_path.iterdir())


def test_a_damaged_search_file_is_a_fault(tmp_path: Path) -> None:
    e = experiment()
    finished(e, RATES, SearchPlan(2), tmp_path, Trainer(peak))
    path = search_path(tmp_path, e, RATES)
    table = json.loads(path.read_text())
    table["trials"][0]["state"] = "lost"
    path.write_text(json.dumps(table))
    with pytest.raises(Fault, match="is damaged"):
        finished(e, RATES, SearchPlan(2), tmp_path, Trainer(peak))


@pytest.mark.integration
def test_tune_returns_the_experiment_with_the_best_settings(tmp_path: Path) -> None:
    """Real runs, and a real interruption: the records of both searches are the same."""
    settings = {"rounds": 3, "validation": 0.2, "model": "mlp", "local": {"epochs": 1}}
    e = experiment(**settings)
    best = fedadb.tune(e, budget=3, out=tmp_path, search=["local.lr=0.001,0.1,0.01"])
    search = read_search(search_path(tmp_path, e, RATES))
    assert search.best is not None
    scores = {trial.values["local.lr"]: trial.score for trial in search.trials}
    assert best.local.lr == max(scores, key=lambda lr: scores[lr] or 0)
    for trial in search.trials:
        records = read_records(tmp_path / trial.run / "rounds.jsonl")
        accuracies = sorted(record["validation_accuracy"] for record in records)
        assert trial.score == pytest.approx(sum(accuracies[-5:]) / len(accuracies[-5:]))
