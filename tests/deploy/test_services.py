"""The systemd units, and the documented exit codes."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import invoke
from tests.deploy.federation import ROOT
from tests.test_docs import table

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.stem))
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    """With a command and a user that exist here."""
    text = unit.read_text().replace("/opt/fedadb/bin/fedadb", sys.executable)
    text = re.sub(r"(?m)^(User|Group)=.*$", r"\1=root", text)
    (tmp_path / unit.name).write_text(text)
    words = ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.stem))
def test_the_command_of_a_unit_exists(unit: Path, tmp_path: Path) -> None:
    """All its options are known, so that it fails only because its experiment is not here."""
    (command,) = re.findall(r"(?m)^ExecStart=(.*)$", unit.read_text())
    done = invoke(*shlex.split(command.replace("experiment.toml", str(tmp_path / "e.toml")))[1:])
    assert (done.code, "e.toml" in done.err) == (2, True), done


def test_a_unit_stays_stopped_after_wrong_input() -> None:
    assert len(UNITS) == 2
    for unit in UNITS:
        assert "\nRestartPreventExitStatus=2\n" in unit.read_text()
        assert "\nSuccessExitStatus=130 143\n" in unit.read_text()


def test_the_exit_codes_are_documented() -> None:
    """Other tests check each of them: test_server.py."""
    assert list(table("operating.md", "exit code")) == ["0", "1", "2", "75", "130", "143"]
