"""The commands `tune`, `compare --tuned` and `reproduce --tuned`."""

import os
import re
import signal
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from fedadb.experiment.presets import RATES
from fedadb.storage.searches import read_searches
from tests.command_line import invoke, start

pytestmark = pytest.mark.integration

TINY = [
    *("--set", "rounds=3", "--set", "local.epochs=1", "--set", "model=mlp"),
    *("--set", "validation=0.2", "--set", "engine.workers=1"),
]


def runs_in(directory: Path) -> dict[str, str]:
    """The records of each run, without times."""
    return {
        path.parent.name: re.sub(r'"seconds": [^,]*', "", path.read_text())
        for path in directory.glob("*/rounds.jsonl")
    }


def test_tune_shows_what_was_tried_and_writes_winners_that_run(tmp_path: Path) -> None:
    words = ["tune", *TINY, "--algorithms", "fedavg,fedprox", "--budget", 3, "--out", tmp_path]
    code, shown, err = invoke(*words)
    assert (code, err) == (0, "")
    searches = list(read_searches(tmp_path).values())
    assert [len(search.trials) for search in searches] == [3, 3]  # the same for every method
    assert "FedAvg, lr=0.03  round 1/3" in shown
    assert "run 6 of 6" in shown
    winners = re.findall(r"Best: fedadb run (\S+\.toml)", shown)
    assert len(winners) == 2
    best = [search.best for search in searches if search.best]
    assert [Path(path).name.partition("-seed")[0] for path in winners] == [
        "digits-fedavg",
        "digits-fedprox",
    ]
    code, shown, err = invoke("run", winners[0], "--out", tmp_path / best[0].run)
    assert (code, err) == (0, "")
    assert "finished earlier" in shown  # the winner is the trial's run
    assert (tmp_path / "report" / "tuning.csv").exists()
    before = runs_in(tmp_path)
    code, again, err = invoke(*words)
    assert (code, err) == (0, "")
    assert "round 1/3" not in again
    assert runs_in(tmp_path) == before


def test_a_tuned_comparison_gives_each_method_its_rate_and_all_seeds(tmp_path: Path) -> None:
    words = ["compare", *TINY, "--algorithms", "fedavg,fedlc", "--seeds", "0,1", "--out", tmp_path]
    code, shown, err = invoke(*words, "--tuned", 2)
    assert (code, err) == (0, "")
    assert len(runs_in(tmp_path)) == 2 * 2 + 2  # the winner's run with the first seed is a trial
    summary = (tmp_path / "report" / "summary.csv").read_text()
    assert summary.count("FedAvg") == 1
    assert summary.count("FedLC") == 1
    assert "2 runs to find" in shown
    assert "All methods ran at one learning rate" not in shown


def test_a_killed_search_resumes(tmp_path: Path) -> None:
    words = ["tune", *TINY, "--algorithms", "fedavg", "--budget", 3, "--pruner", "none"]
    assert invoke(*words, "--out", tmp_path / "whole").code == 0
    process = start(*words, "--out", tmp_path / "killed")
    while not list((tmp_path / "killed").glob("*/rounds.jsonl")):
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    code, _, err = invoke(*words, "--out", tmp_path / "killed")
    assert (code, err) == (0, "")
    assert runs_in(tmp_path / "killed") == runs_in(tmp_path / "whole")
    scores = [
        [
            trial.score
            for search in read_searches(tmp_path / name).values()
            for trial in search.trials
        ]
        for name in ("whole", "killed")
    ]
    assert scores[0] == scores[1]


def test_a_study_can_be_tuned_in_each_of_its_settings(tmp_path: Path) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(
        "[experiment]\nrounds = 2\nmodel = 'mlp'\nvalidation = 0.2\n"
        "local = {epochs = 1}\nengine = {workers = 1}\n"
        "[vary]\nseed = [0, 1]\n"
        "[[grid]]\nalgorithm = ['fedavg']\n'federation.partition.alpha' = [0.5, 5.0]\n"
    )
    out = tmp_path / "out"
    code, shown, err = invoke("reproduce", study, "--tuned", 2, "--out", out)
    assert (code, err) == (0, "")
    searches = list(read_searches(out).values())
    alphas = [s.experiment["federation"]["partition"]["alpha"] for s in searches]
    assert sorted(alphas) == [0.5, 5.0]
    assert len(runs_in(out)) == 2 * (2 + 1)
    assert "each method tuned with 2 runs" in (out / "report-mine-tuned" / "index.html").read_text()
    assert shown.count("α=") >= 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "validation=0.0"], "validation = 0: "),
        (["--search", "local.lr=1..0.1"], "low below high"),
        (["--search", "local.lr=0..0.1"], "low must be above 0"),
        (["--search", "local.lr=0.1,0.2,0.3", "--budget", "2"], "below the number of choices"),
        (["--sampler", "grid", "--budget", "1"], "below the number of choices"),
        (["--search", "algorithm.mu=0.1..1"], "algorithm.mu cannot be searched"),
        (["--search", "local.batch_size=0,1", "--budget", "2"], "local.batch_size = 0"),
        (["--search", "local.epochs=1,2"], "local.epochs is both set and searched"),
        (["--sampler", "best"], "--sampler best: is not known"),
        (["--algorithms", "fedavg,fedavg"], "algorithm fedavg is given twice"),
        (["--algorithms", "fedav"], "algorithm = 'fedav': is not known"),
    ],
)
def test_wrong_searches_are_one_sentence_and_write_nothing(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    out = tmp_path / "out"
    code, shown, err = invoke("tune", *TINY, "--algorithms", "fedavg", "--out", out, *words)
    assert (code, shown) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not out.exists()


def test_a_search_without_optuna_says_what_to_install(tmp_path: Path) -> None:
    with patch.dict("sys.modules", {"optuna": None}):
        code, _, err = invoke("tune", *TINY, "--out", tmp_path / "out")
    assert (code, err) == (2, "fedadb: a search needs Optuna: `pip install 'fedadb[tune]'`\n")


def test_what_the_command_or_a_study_fixes_is_not_searched(tmp_path: Path) -> None:
    words = ["--tuned", 2, "--out", tmp_path / "compared"]
    code, _, err = invoke("compare", *TINY, "--algorithms", "fedavg", "--set", "local.lr=1", *words)
    assert (code, "FedAvg: there is nothing to search: local.lr is fixed" in err) == (2, True)
    study = tmp_path / "rates.toml"
    study.write_text("[[grid]]\nalgorithm = ['fedprox']\n'local.lr' = [0.01, 0.1]\n")
    out = tmp_path / "study"
    code, shown, err = invoke("reproduce", study, *TINY, "--tuned", 2, "--out", out)
    assert (code, err) == (0, "")
    assert [list(search.space) for search in read_searches(out).values()] == [["algorithm.mu"]] * 2
    assert "lr=0.01" in shown
    assert "lr=0.1" in shown


def test_one_search_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    words = ["tune", *TINY, "--out", tmp_path, "--algorithms", "fedavg,fedprox", "--budget", 1]
    assert (
        invoke(*words[:-4], "--algorithms", "fedavg", "--budget", 1, "--pruner", "none").code == 0
    )
    code, shown, err = invoke(*words)
    assert code == 1
    assert "FedAvg: " in err
    assert "is another search for this experiment: its pruner is none" in err
    assert "1 of 2 searches failed" in err
    assert shown.count("Best: fedadb run") == 1


def test_a_comparison_at_one_learning_rate_says_how_to_mend_that(tmp_path: Path) -> None:
    words = ["compare", *TINY, "--algorithms", "fedavg,fedlc", "--out", tmp_path]
    code, shown, _ = invoke(*words, "--set", "local.lr=0.05")
    assert code == 0
    last = shown.splitlines()[-1]
    assert last.startswith("All methods ran at one learning rate, 0.05, which may suit some")
    assert last.endswith(f"--algorithms fedavg,fedlc --out {tmp_path} --tuned 4")
    code, shown, _ = invoke(*words, "--algorithms", "fedlc", "--set", "local.lr=0.05")
    assert "All methods ran" not in shown  # one method alone compares nothing


def test_a_comparison_at_the_rates_of_the_presets_says_where_they_come_from(
    tmp_path: Path,
) -> None:
    assert RATES["digits"]["fedavg"] != RATES["digits"]["fedadb"]
    code, shown, _ = invoke("compare", *TINY, "--out", tmp_path)
    assert code == 0
    words = " ".join(shown.split())
    assert "which 4 runs per method chose on validation data: FedAvg 0.01, FedADB 0.03." in words
    assert "All methods ran" not in shown
    summary = (tmp_path / "report" / "summary.csv").read_text()
    assert len({line.partition(",")[0] for line in summary.splitlines()[1:]}) == 1  # one setting
