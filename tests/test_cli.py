"""The command as a person types it: exit codes, one sentence on stderr, no traceback."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedadb import cli
from tests.datasets.official import pixels, write_cifar10, write_images, write_medmnist
from tests.report.made import make_run

pytestmark = pytest.mark.integration


def invoke(
    *words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """`fedadb` with these words, in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["fedadb", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_a_run_shows_its_rounds_and_what_came_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quick.toml"
    file.write_text("rounds = 9\n[local]\nepochs = 1\n")
    words = ["run", str(file), "--set", "rounds=3", "--out", str(tmp_path / "run")]
    code, out, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert (
        len(re.findall(r"round \d/3  accuracy 0\.\d{3}  best 0\.\d{3}  left 0:00:\d\d", out)) == 3
    )
    assert "best 5" in out
    assert "forgetting" in out
    assert str(tmp_path / "run") in out


def test_a_comparison_ends_in_a_table_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "both"
    words = ["compare", "--set", "rounds=2", "--set", "local.epochs=1", "--out", str(out)]
    code, shown, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert "FedAvg on digits, seed 0" in shown
    assert "FedADB on digits, seed 0" in shown
    assert {re.sub("-[0-9a-f]{8}$", "", p.name) for p in out.iterdir()} == {
        "digits-fedavg-seed0",
        "digits-fedadb-seed0",
        "report",
    }
    assert (out / "report" / "index.html").stat().st_size > 1e6
    rounds = {p.parent.name: p.read_text() for p in out.glob("*/rounds.jsonl")}
    table = (out / "report" / "accuracy.csv").read_text()
    code, again, _ = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "round 1/2" not in again  # what is done is not done again
    assert {p.parent.name: p.read_text() for p in out.glob("*/rounds.jsonl")} == rounds
    assert (out / "report" / "accuracy.csv").read_text() == table


@pytest.mark.parametrize("rounds_before", [1, 6])
def test_a_comparison_that_was_killed_ends_in_the_same_tables(
    rounds_before: int, tmp_path: Path
) -> None:
    def words(out: Path) -> list[str]:
        settings = ["--set", "rounds=5", "--set", "local.epochs=1", "--out", str(out)]
        return [sys.executable, "-m", "fedadb", "compare", *settings]

    def rounds() -> int:
        files = (tmp_path / "killed").glob("*/rounds.jsonl")
        return sum(len(file.read_text().splitlines()) for file in files)

    process = subprocess.Popen(words(tmp_path / "killed"), stdout=subprocess.DEVNULL)
    while rounds() < rounds_before:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    for out in ("killed", "unbroken"):
        subprocess.run(words(tmp_path / out), check=True, stdout=subprocess.DEVNULL)
    for name in ("accuracy.csv", "convergence.csv"):
        once, again = (
            (tmp_path / out / "report" / name).read_text() for out in ("killed", "unbroken")
        )
        assert once == again


def test_a_run_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--algorithms", "feddyn,fedavg", "--set", "rounds=1", "--set"]
    words += ["algorithm={name='feddyn', alpha=1e30}", "--out", str(tmp_path)]
    code, shown, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert "FedAvg on digits, seed 0  round 1/1" in shown
    assert re.search("digits-feddyn-seed0-[0-9a-f]+: FedDyn: client", err)
    assert "1 of 2 runs failed; the same command tries them again" in err
    assert "FedAvg" in (tmp_path / "report" / "accuracy.md").read_text()


def test_what_is_wrong_with_all_runs_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--set", "engine.device=cuda:7", "--out", str(tmp_path / "out")]
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert err.count("engine.device = 'cuda:7': is not on this machine") == 1
    (tmp_path / "file").touch()
    words[-1] = str(tmp_path / "file")
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "is a file; --out must name a directory" in err) == (2, True)


def test_a_study_finds_algorithms_beside_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beside_study.py").write_text(
        "from fedadb.algorithms.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    study = tmp_path / "s.toml"
    study.write_text('[[grid]]\nalgorithm = ["beside_study:Mine"]\nrounds = [1]\n')
    words = ["reproduce", str(study), "--out", str(tmp_path / "out")]
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")


def test_a_study_in_part_and_in_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(
        'title = "Mine"\n[experiment.local]\nepochs = 1\n'
        '[[grid]]\nalgorithm = ["fedavg", "fedntd"]\nseed = [0, 1]\n'
    )
    out = tmp_path / "out"
    words = ["reproduce", str(study), "--only", "seed=1", "--scale", "0.05", "--out", str(out)]
    code, shown, err = invoke(*words, "--dry-run", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert "Runs: 2, about 0:00:" in shown
    assert not out.exists()
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert len(list(out.glob("digits-*-seed1-*/model.safetensors"))) == 2
    assert "Mine, 0.05 of the paper's rounds" in (out / "report-mine" / "index.html").read_text()
    code, shown, _ = invoke(*words, "--dry-run", monkeypatch=monkeypatch, capsys=capsys)
    assert shown.count("done") == 3  # the column's name, and both runs
    assert "nothing left that can run" in shown
    code, _, err = invoke(*words[:2], "--scale", "0", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "--scale 0: must be above 0" in err) == (2, True)


def test_a_report_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "runs", [0.5, 0.6])
    words = ["report", str(tmp_path / "runs")]
    code, shown, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert str(tmp_path / "runs" / "report" / "index.html") in shown
    code, _, err = invoke("report", str(tmp_path / "no"), monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "no does not exist" in err) == (2, True)
    (tmp_path / "file").touch()
    words += ["--out", str(tmp_path / "file")]
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "is a file, and must be a directory" in err) == (2, True)


@pytest.mark.parametrize("live", [True, False])  # written with the rounds, or when they are done
def test_events_for_tensorboard_go_on_with_the_run(
    live: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ["run", "--set", "rounds=3", "--set", "local.epochs=1", "--out", str(tmp_path)]
    for more in (["--tensorboard"] if live else [], [], ["--tensorboard"]):
        code, _, _ = invoke(*words, *more, monkeypatch=monkeypatch, capsys=capsys)
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
def test_wrong_comparisons_are_refused(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = invoke("compare", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert message in err


def test_the_bar_is_for_terminals() -> None:
    from rich.console import Console

    from fedadb.experiment.run import Run
    from fedadb.cli.display import bar, follow

    rounds = [{"accuracy": a, "seconds": 60.0} for a in (0.2, 0.9, 0.5)]
    run = Run(Path(), rounds[:1], iter(rounds[1:]))
    screen = Console(force_terminal=True, record=True, width=100, height=20)
    with screen.capture() as shown, bar(screen) as progress:
        assert follow(run, 5, progress, "FedAvg on digits") == rounds
    assert "3/5" in shown.get()
    assert "accuracy 0.500  best 0.900  left 0:02:00" in shown.get()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("local.lrr=1", "local.lrr is not a key; did you mean lr"),
        ("rounds=some", "rounds = 'some': must be a whole number"),
        ("federation.partition={name='dirichlet',alpha=-1}", "alpha = -1: must be greater than 0"),
        ("federation.participation=0.01", "samples nobody of 20 clients"),
        ("federation.clients=5000 federation.partition=iid", "5000 clients but only 1438 rows"),
        ("federation.clients=500", "500 clients with at least 10 rows each need 5000 rows"),
        ("dataset=digitz", "did you mean digits"),
        ("algorithm=fedav", "did you mean fedavg"),
        ("dataset=organamnist", "`fedadb data fetch organamnist`"),
        ("engine.device=cuda:7", "engine.device = 'cuda:7': is not on this machine"),
        ("engine.device=abacus", "engine.device = 'abacus': is not on this machine"),
        ("model=inception", "inception takes images of 1 or 3 channels from 64×64"),
        ("rounds", "must be KEY=VALUE"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(
    settings: str,
    message: str,
    no_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    words = ["run", "--out", str(out)]
    for setting in settings.split(" "):
        words += ["--set", setting]
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert message in err
    assert err.startswith("fedadb: ")
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_file_that_is_not_there_is_one_sentence_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = invoke("run", "nowhere.toml", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "nowhere.toml cannot be read" in err


def test_wrong_data_of_ones_own_are_one_sentence_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "a.npz", x=pixels(20, 28, 28), y=np.arange(19))
    np.savez(tmp_path / "b.npz", images=pixels(20, 28, 28))
    write_images(tmp_path / "one" / "class", 3)
    for dataset, message in (
        (f"npz:{tmp_path}/a.npz", "x has 20 rows and y has 19"),
        (f"npz:{tmp_path}/b.npz", "no array 'x_train'; it has images"),
        (f"folder:{tmp_path}/one", "has 1 class"),
    ):
        words = ["run", "--set", f"dataset={dataset}", "--out", str(tmp_path / "run")]
        code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
        assert code == 2
        assert message in err


def test_the_datasets_are_listed(no_data: Path) -> None:
    write_cifar10(no_data / "cifar-10-batches-bin")
    result = CliRunner().invoke(cli.app, ["data", "list"])
    assert result.exit_code == 0
    assert re.search(r"cifar10 +10 3×32×32 +50000 10000 170 unstated +by hand", result.output)
    assert re.search(r"svhn +10 3×32×32 +73257 26032 246 non-commercial +no", result.output)
    assert str(no_data) in result.output.replace("\n", "")


def test_a_check_tells_what_is_wrong(
    no_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "check", "breastmnist"]
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "`fedadb data fetch breastmnist`" in err
    write_medmnist(no_data / "medmnist/breastmnist.npz", 2)
    code, out, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err.count("\n")) == (1, 1)
    assert re.search(r"rows to train +624 +50 +WRONG", out)
    assert "not as published: MD5 of breastmnist.npz, rows to train, rows to test" in err


def test_a_partition_is_shown_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "new" / "who.png"
    words = ["partition", "--set", "federation.partition=shards", "--out", str(picture)]
    code, out, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert re.search(r"classes +2\.0 +2\.0 +2\.0 +2\.0", out)
    assert re.search(r"missing-class rate γ +0\.800 +0\.800 +0\.800", out)
    with Image.open(picture) as drawn:
        assert min(drawn.size) > 400
    strange = np.array(["$x^2$", r"$\frac{$", "红", "n" * 300])
    np.savez(tmp_path / "a.npz", x=pixels(400, 28, 28), y=np.arange(400) % 4, classes=strange)
    words[2:3] = [f"dataset=npz:{tmp_path / 'a.npz'}"]
    code, out, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    words[-1] = "/proc/who.png"
    code, _, err = invoke(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "--out '/proc/who.png' cannot be written" in err
    code, _, err = invoke("partition", "--out", "who.doc", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (2, "fedadb: --out 'who.doc': must end in .png, .pdf or .svg\n")


def test_fetching_what_is_not_there_to_fetch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = invoke("data", "fetch", "organmnist", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert re.search("did you mean .*organamnist", err)


def test_help_tells_every_option() -> None:
    result = CliRunner().invoke(cli.app, ["run", "--help"])
    for word in ("--set", "--out", "EXPERIMENT"):
        assert word in result.output


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    import signal
    import time

    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedadb", "run", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "checkpoint.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == f"fedadb: stopped; the same command goes on from the last round in {out}\n"
