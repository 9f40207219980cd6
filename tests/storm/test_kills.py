"""A short version of `python -m storm kills`: strikes at operations on files, not at times."""

import random
from pathlib import Path

import pytest

from storm.kills import Kills
from storm.outcome import Outcome
from storm.targets import TARGETS, saved_rounds
from storm.traces import difference, results

pytestmark = pytest.mark.integration


def test_struck_runs_end_as_if_they_were_whole(tmp_path: Path) -> None:
    outcome = Outcome("kills", 0, "")
    kills = Kills(TARGETS[0], random.Random(0), outcome, tmp_path / "kills")
    out = tmp_path / "kills" / "out"
    done = [kills.strike_at("KILL", kills.whole.operations // 2, out)]
    assert saved_rounds(out) > 0
    done += [kills.strike_at(kind, 12, out) for kind in ("TERM", "INT")]
    done += [kills.fail_write(n, out) for n in (3, 9)]
    kills.compare_end(out, done)
    assert outcome.violations == []
    assert outcome.counts["strikes"] == 5


def test_a_file_that_is_left_behind_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("1")
    before = results(tmp_path)
    (tmp_path / "a.toml").write_text("2")
    (tmp_path / "b.partial").touch()
    assert difference(before, results(tmp_path)) == "left behind: b.partial; different: a.toml"


def test_a_violation_ends_with_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome("kills", 7, "python -m storm kills --seed 7")
    outcome.require(False, "a round was lost")
    assert not outcome.finish(tmp_path)
    assert "repeat with: python -m storm kills --seed 7" in capsys.readouterr().err
    assert '"a round was lost"' in (tmp_path / "kills-7.json").read_text()
