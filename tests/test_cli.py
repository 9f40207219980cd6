"""The command line: output, exit codes, and errors of one sentence without a traceback."""

import csv
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from fedadb import cli
from fedadb.cli import estimate
from fedadb.cli.display import ProgressBar, progress_bars
from fedadb.cli.reproduce import STUDIES
from fedadb.experiment.config import Experiment
from fedadb.experiment.observation import observed
from fedadb.progress import Progress
from tests.command_line import Ended, invoke, start
from tests.datasets.official import pixels, write_cifar10, write_images, write_medmnist
from tests.report.synthetic_runs import make_run

pytestmark = pytest.mark.integration

SHORT = ["--set", "rounds=3", "--set", "local.epochs=1", "--set", "model=mlp"]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A finished comparison of FedAvg and FedADB over three rounds. Tests must not change it."""
    out = tmp_path_factory.mktemp("comparison") / "both"
    return out, invoke("compare", *SHORT, "--out", out)


@pytest.fixture
def comparison_copy(comparison: tuple[Path, Ended], tmp_path: Path) -> Path:
    """A copy of that comparison, for tests that change it."""
    return shutil.copytree(comparison[0], tmp_path / "both")


def methods_in(report: Path) -> list[str]:
    """The methods of a report's accuracy table, in their order."""
    with (report / "accuracy.csv").open(encoding="utf-8") as file:
        return [row[0] for row in csv.reader(file)][1:]


def page_title(report: Path) -> str:
    page = html.unescape((report / "index.html").read_text())
    match = re.search("<title>(.*?) · fedadb</title>", page)
    assert match
    return match[1]


def test_a_run_shows_its_rounds_and_its_results(tmp_path: Path) -> None:
    file = tmp_path / "quick.toml"
    file.write_text("rounds = 9\n[local]\nepochs = 1\n")
    code, out, err = invoke("run", file, "--set", "rounds=3", "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert (
        len(re.findall(r"round \d/3  accuracy 0\.\d{3}  best 0\.\d{3}  left 0:00:\d\d", out)) == 3
    )
    assert "best 5" in out
    assert "forgetting" in out
    assert str(tmp_path / "run") in out


def test_a_comparison_ends_in_a_table_and_a_report(
    comparison: tuple[Path, Ended], comparison_copy: Path
) -> None:
    original, (code, shown, err) = comparison
    assert (code, err) == (0, "")
    assert "FedAvg on digits, seed 0" in shown
    assert "FedADB on digits, seed 0" in shown
    assert {re.sub("-[0-9a-f]{8}$", "", p.name) for p in original.iterdir()} == {
        "digits-fedavg-seed0",
        "digits-fedadb-seed0",
        "report",
    }
    assert (original / "report" / "index.html").stat().st_size > 1e6
    assert page_title(original / "report") == "digits: FedAvg, FedADB"
    out = comparison_copy
    rounds = {p.parent.name: p.read_text() for p in out.glob("*/rounds.jsonl")}
    table = (out / "report" / "accuracy.csv").read_text()
    code, again, _ = invoke("compare", *SHORT, "--out", out)
    assert code == 0
    assert "round 1/3" not in again  # finished runs are skipped
    assert "FedAvg on digits, seed 0: finished earlier, in" in again
    assert {p.parent.name: p.read_text() for p in out.glob("*/rounds.jsonl")} == rounds
    assert (out / "report" / "accuracy.csv").read_text() == table


def test_a_smaller_comparison_keeps_what_the_report_shows(comparison_copy: Path) -> None:
    """The report covers all runs of the directory; the methods asked for come first."""
    report = comparison_copy / "report"
    assert methods_in(report) == ["FedAvg", "FedADB"]
    words = ["compare", *SHORT, "--out", comparison_copy]
    code, shown, err = invoke(*words, "--algorithms", "fedadb")
    assert (code, err) == (0, "")
    assert methods_in(report) == ["FedADB", "FedAvg"]
    assert page_title(report) == "digits: FedADB, FedAvg"
    table = shown.partition("forgetting")[2]
    assert "FedADB" in table
    assert "FedAvg" not in table  # the terminal shows what was asked for


def test_rows_are_in_the_order_asked_for(comparison_copy: Path) -> None:
    words = ["compare", *SHORT, "--out", comparison_copy]
    code, shown, err = invoke(*words, "--algorithms", "fedadb,fedavg")
    assert (code, err) == (0, "")
    assert methods_in(comparison_copy / "report") == ["FedADB", "FedAvg"]
    table = shown.partition("forgetting")[2]
    assert table.index("FedADB") < table.index("FedAvg")


def test_a_killed_comparison_ends_in_the_same_tables(
    comparison: tuple[Path, Ended], tmp_path: Path
) -> None:
    """It is killed in its first run, resumed, and killed again in its second run."""
    words = ["compare", *SHORT, "--out", str(tmp_path)]

    def rounds() -> int:
        files = tmp_path.glob("*/rounds.jsonl")
        return sum(len(file.read_text().splitlines()) for file in files)

    for rounds_before in (1, 4):
        process = start(*words)
        while rounds() < rounds_before:
            assert process.is_alive()
            time.sleep(0.01)
        process.kill()
        process.join()
    code, _, err = invoke(*words)
    assert (code, err) == (0, "")
    for name in ("accuracy.csv", "convergence.csv"):
        resumed, unbroken = (out / "report" / name for out in (tmp_path, comparison[0]))
        assert resumed.read_text() == unbroken.read_text()


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    settings = ["--set", "rounds=1", "--set", "algorithm={name='feddyn', alpha=1e30}"]
    words = ["compare", "--algorithms", "feddyn,fedavg", *SHORT, *settings, "--out", tmp_path]
    code, shown, err = invoke(*words)
    assert code == 1
    assert "FedAvg on digits, seed 0  round 1/1" in shown
    assert re.search("digits-feddyn-seed0-[0-9a-f]+: FedDyn: client", err)
    assert "1 of 2 runs failed; the same command tries them again" in err
    assert "FedAvg" in (tmp_path / "report" / "accuracy.md").read_text()


def test_an_error_of_all_runs_is_shown_once(tmp_path: Path) -> None:
    words = ["compare", "--set", "engine.device=cuda:7", "--out"]
    code, _, err = invoke(*words, tmp_path / "out")
    assert code == 2
    assert err.count("engine.device = 'cuda:7': this machine has no such device") == 1
    (tmp_path / "file").touch()
    code, _, err = invoke(*words, tmp_path / "file")
    assert (code, "is a file; --out must name a directory" in err) == (2, True)


def test_a_study_uses_algorithms_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "beside_study.py").write_text(
        "from fedadb.algorithms.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    study = tmp_path / "s.toml"
    local = "[experiment.local]\nepochs = 1\n"
    study.write_text(local + '[[grid]]\nalgorithm = ["beside_study:Mine"]\nrounds = [1]\n')
    code, _, err = invoke("reproduce", study, "--out", tmp_path / "out")
    assert (code, err) == (0, "")


def test_ones_own_algorithm_has_its_class_name_everywhere(tmp_path: Path) -> None:
    (tmp_path / "own_method.py").write_text(
        "from fedadb.algorithms.fedavg import FedAvg\nclass FedMine(FedAvg):\n    pass\n"
    )
    file = tmp_path / "experiment.toml"
    file.write_text("rounds = 1\n[local]\nepochs = 1\n")
    words = ["compare", file, "--algorithms", "own_method:FedMine", "--out", tmp_path / "out"]
    code, shown, err = invoke(*words)
    assert (code, err) == (0, "")
    assert "FedMine on digits, seed 0  round 1/1" in shown
    assert "own_method:FedMine" not in shown
    report = tmp_path / "out" / "report"
    assert methods_in(report) == ["FedMine"]
    assert page_title(report) == "digits: FedMine"


def test_a_changed_algorithm_replaces_its_earlier_version_in_the_report(tmp_path: Path) -> None:
    module, out = tmp_path / "changing_method.py", tmp_path / "out"
    file = tmp_path / "experiment.toml"
    file.write_text("rounds = 1\n[local]\nepochs = 1\n")
    words = ["compare", file, "--algorithms", "changing_method:FedMine", "--out", out]
    source = "from fedadb.algorithms.fedavg import FedAvg\nclass FedMine(FedAvg):\n"
    learns_nothing = "    def aggregate(self, s, replies, round):\n        return s\n"
    runs: list[Path] = []
    for body in ("    pass\n", learns_nothing):
        module.write_text(source + body)
        sys.modules.pop("changing_method", None)
        code, shown, err = invoke(*words)
        assert (code, err) == (0, "")
        assert "FedMine on digits, seed 0  round 1/1" in shown
        (new,) = {path.parent for path in out.glob("*/rounds.jsonl")} - set(runs)
        runs.append(new)
    earlier, current = (json.loads((run / "rounds.jsonl").read_text())["accuracy"] for run in runs)
    assert earlier != current
    with (out / "report" / "accuracy.csv").open(encoding="utf-8") as table:
        ((method, accuracy, *_),) = list(csv.reader(table))[1:]
    assert method == "FedMine"
    assert float(accuracy) == pytest.approx(100 * current, abs=0.01)


def test_a_study_in_part_and_with_fewer_rounds(tmp_path: Path) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(
        'title = "Mine"\n[experiment.local]\nepochs = 1\n'
        '[[grid]]\nalgorithm = ["fedavg", "fedntd"]\nseed = [0, 1]\n'
    )
    out = tmp_path / "out"
    words = ["reproduce", study, "--only", "seed=1", "--scale", "0.05", "--out", out]
    code, shown, err = invoke(*words, "--measure")
    assert (code, err) == (0, "")
    assert "Runs: 2, about 0:00:" in shown
    assert not out.exists()
    code, _, err = invoke(*words)
    assert (code, err) == (0, "")
    assert len(list(out.glob("digits-*-seed1-*/model.safetensors"))) == 2
    assert "Mine, 0.05 of the paper's rounds" in page_title(out / "report-mine")
    code, shown, _ = invoke(*words, "--dry-run")
    assert shown.count("done") == 3  # the column's name, and both runs
    assert "nothing left that can run" in shown
    code, _, err = invoke("reproduce", study, "--scale", "0")
    assert (code, "--scale 0: must be above 0" in err) == (2, True)


def test_a_dry_run_measures_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing uses the costs that `--measure` has kept, and never measures one twice."""
    measured: list[str] = []

    def measure_cost(e: Experiment, progress: Progress) -> estimate.StepCost:
        measured.append(type(e.algorithm).__name__)
        return estimate.StepCost(train_row=0.01, test_row=0.001, broadcast=1.0)

    monkeypatch.setattr(estimate, "measure_cost", measure_cost)
    study = tmp_path / "mine.toml"
    study.write_text('[[grid]]\nalgorithm = ["fedavg", "fedntd"]\nseed = [0, 1]\n')
    words = ["reproduce", study, "--out", tmp_path / "out"]
    code, shown, err = invoke(*words, "--dry-run")
    assert (code, err, measured) == (0, "", [])
    assert shown.count("unknown") == 5  # four runs, and the summary
    assert "Runs: 4, of unknown time, in" in shown
    assert "--measure measures" in shown
    invoke(*words, "--measure", "--only", "algorithm=fedavg")
    assert measured == ["FedAvg"]
    code, shown, _ = invoke(*words, "--dry-run")
    assert shown.count("unknown") == 3
    assert re.search(r"Runs: 4, about \d:\d\d:\d\d on this machine, without 2 of unknown", shown)
    invoke(*words, "--measure")
    invoke(*words, "--measure")
    assert measured == ["FedAvg", "FedNTD"]


def test_a_dry_run_of_data_that_are_not_here(no_data: Path) -> None:
    code, shown, err = invoke("reproduce", "ablation", "--dry-run")
    assert (code, err) == (0, "")
    assert shown.count("no data") == 36
    assert "Runs: 36, nothing left that can run, in runs/ablation" in shown
    assert "cifar10 is not on this machine: `fedadb data fetch cifar10`" in shown


def test_a_report_of_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", [0.5, 0.6])
    words = ["report", tmp_path / "runs"]
    code, shown, err = invoke(*words)
    assert (code, err) == (0, "")
    assert str(tmp_path / "runs" / "report" / "index.html") in shown
    code, _, err = invoke("report", tmp_path / "no")
    assert (code, "no does not exist" in err) == (2, True)
    (tmp_path / "file").touch()
    code, _, err = invoke(*words, "--out", tmp_path / "file")
    assert (code, "is a file, and must be a directory" in err) == (2, True)


@pytest.mark.parametrize("live", [True, False])  # written with the rounds, or after the last one
def test_tensorboard_events_cover_all_rounds(live: bool, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ["run", "--set", "rounds=3", "--set", "local.epochs=1", "--out", tmp_path]
    track = ["--track", "tensorboard"]
    for more in (track if live else [], [], track):
        code, _, _ = invoke(*words, *more)
        assert code == 0
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    written = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    shown = [(e.step, e.value) for e in events.Scalars("accuracy")]
    assert shown == [(r["round"], pytest.approx(r["accuracy"])) for r in written]
    assert "class_accuracy/9" in events.Tags()["scalars"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0,0"], "seed 0 is given twice"),
        (["--seeds", "zero"], "--seeds 'zero': must be whole numbers"),
        (["--algorithms", "fedavg,fedav"], "algorithm = 'fedav': is not known"),
    ],
)
def test_wrong_comparisons_are_refused(words: list[str], message: str) -> None:
    code, _, err = invoke("compare", *words)
    assert code == 2
    assert message in err


def test_a_terminal_shows_a_progress_bar() -> None:
    rounds = [{"accuracy": a, "seconds": 60.0} for a in (0.2, 0.9, 0.5)]
    screen = Console(force_terminal=True, record=True, width=100, height=20)
    with screen.capture() as shown, progress_bars(screen) as bars:
        bar, e = ProgressBar(bars, "FedAvg on digits"), Experiment(rounds=5)
        with observed([bar], e, Path(), rounds[:1], iter(rounds[1:])) as seen:
            assert list(seen) == rounds[1:]
        assert bar.done == rounds
    assert "3/5" in shown.get()
    assert "accuracy 0.500  best 0.900  left 0:02:00" in shown.get()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("local.lrr=1", "local.lrr is not a setting; did you mean lr"),
        ("rounds=some", "rounds = 'some': must be a whole number"),
        ("federation.partition={name='dirichlet',alpha=-1}", "alpha = -1: must be greater than 0"),
        ("federation.participation=0.01", "selects none of 20 clients"),
        ("federation.clients=5000 federation.partition=iid", "5000 clients but only 1438 rows"),
        ("federation.clients=500", "500 clients with at least 10 rows each need 5000 rows"),
        ("dataset=digitz", "did you mean digits"),
        ("algorithm=fedav", "did you mean fedavg"),
        ("dataset=organamnist", "`fedadb data fetch organamnist`"),
        ("engine.device=cuda:7", "engine.device = 'cuda:7': this machine has no such device"),
        ("engine.device=abacus", "engine.device = 'abacus': this machine has no such device"),
        ("model=inception", "inception takes images of 1 or 3 channels from 64×64"),
        ("rounds", "must be KEY=VALUE"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(
    settings: str, message: str, no_data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["run", "--out", out]
    for setting in settings.split(" "):
        words += ["--set", setting]
    code, _, err = invoke(*words)
    assert code == 2
    assert message in err
    assert err.startswith("fedadb: ")
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_missing_file_is_one_sentence_and_exit_2() -> None:
    code, _, err = invoke("run", "nowhere.toml")
    assert (code, err.count("\n")) == (2, 1)
    assert "nowhere.toml cannot be read" in err


def test_wrong_data_of_ones_own_are_one_sentence_and_exit_2(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=pixels(20, 28, 28), y=np.arange(19))
    np.savez(tmp_path / "b.npz", images=pixels(20, 28, 28))
    write_images(tmp_path / "one" / "class", 3)
    for dataset, message in (
        (f"npz:{tmp_path}/a.npz", "x has 20 rows and y has 19"),
        (f"npz:{tmp_path}/b.npz", "no array 'x_train'; it has images"),
        (f"folder:{tmp_path}/one", "has 1 class"),
    ):
        code, _, err = invoke("run", "--set", f"dataset={dataset}", "--out", tmp_path / "run")
        assert code == 2
        assert message in err


def test_the_datasets_are_listed(no_data: Path) -> None:
    write_cifar10(no_data / "cifar-10-batches-bin")
    result = CliRunner().invoke(cli.app, ["data", "list"])
    assert result.exit_code == 0
    assert re.search(r"cifar10 +10 3×32×32 +50000 10000 170 unstated +by hand", result.output)
    assert re.search(r"svhn +10 3×32×32 +73257 26032 246 non-commercial +no", result.output)
    assert str(no_data) in result.output.replace("\n", "")


def test_a_check_shows_what_is_wrong(no_data: Path) -> None:
    words = ["data", "check", "breastmnist"]
    code, _, err = invoke(*words)
    assert (code, err.count("\n")) == (2, 1)
    assert "`fedadb data fetch breastmnist`" in err
    write_medmnist(no_data / "medmnist/breastmnist.npz", 2)
    code, out, err = invoke(*words)
    assert (code, err.count("\n")) == (1, 1)
    assert re.search(r"training rows +624 +50 +WRONG", out)
    assert "not as published: MD5 of breastmnist.npz, training rows, test rows" in err


def test_a_partition_is_shown_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "who.png"
    words = ["partition", "--set", "federation.partition=shards", "--out"]
    code, out, err = invoke(*words, picture)
    assert (code, err) == (0, "")
    assert re.search(r"classes +2\.0 +2\.0 +2\.0 +2\.0", out)
    assert re.search(r"missing-class rate γ +0\.800 +0\.800 +0\.800", out)
    with Image.open(picture) as drawn:
        assert min(drawn.size) > 400
    strange = np.array(["$x^2$", r"$\frac{$", "红", "n" * 300])
    np.savez(tmp_path / "a.npz", x=pixels(400, 28, 28), y=np.arange(400) % 4, classes=strange)
    words[2:3] = [f"dataset=npz:{tmp_path / 'a.npz'}"]
    code, out, err = invoke(*words, picture)
    assert (code, err) == (0, "")
    code, _, err = invoke(*words, "/proc/who.png")
    assert (code, err.count("\n")) == (2, 1)
    assert "--out '/proc/who.png' cannot be written" in err
    code, _, err = invoke("partition", "--out", "who.doc")
    assert (code, err) == (2, "fedadb: --out 'who.doc': must end in .png, .pdf or .svg\n")


def test_fetching_an_unknown_dataset() -> None:
    code, _, err = invoke("data", "fetch", "organmnist")
    assert code == 2
    assert re.search("did you mean .*organamnist", err)


def test_help_lists_every_option() -> None:
    result = CliRunner().invoke(cli.app, ["run", "--help"])
    for word in ("--set", "--out", "EXPERIMENT"):
        assert word in result.output


def test_help_lists_every_study() -> None:
    words = invoke("reproduce", "--help").out.split()
    assert {word.strip(",;") for word in words} >= set(STUDIES)


def test_the_command_starts_without_what_takes_long_to_import() -> None:
    program = "import sys, fedadb.cli; sys.exit(bool({'torch', 'pydantic'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_the_command_that_resumes(
    number: int, code: int, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = start("run", "--out", out, errors=tmp_path / "errors")
    while not (out / "checkpoint.safetensors").exists():
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    assert (tmp_path / "errors").read_text() == (
        f"fedadb: stopped; finished rounds are kept, and this resumes: fedadb run --out {out}\n"
    )
