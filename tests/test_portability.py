"""The package imports, and runs in one process, on systems other than Linux."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.simulation import worker_count

# What Windows lacks: modules, and functions of os and signal.
WITHOUT_UNIX = """
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
import filelock, sklearn.datasets  # load the real ones, which look at sys.platform
import fedadb, fedadb.cli
for name in dir(fedadb):
    getattr(fedadb, name)
sys.platform = "win32"
experiment = fedadb.Experiment(rounds=1, local={"epochs": 1}, algorithm="fedavg")
print(len(fedadb.run(experiment, sys.argv[1]).rounds))
"""


@pytest.mark.integration
def test_a_run_needs_no_module_that_windows_lacks(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_UNIX, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1"], done.stderr


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_worker_processes_are_refused_where_forking_is_unsafe(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert worker_count(Experiment(), "cpu") == 1
    assert worker_count(Experiment(engine={"workers": 1}), "cpu") == 1
    with pytest.raises(BadInput, match=r"engine\.workers = 4: .* on Linux only"):
        worker_count(Experiment(engine={"workers": 4}), "cpu")
    assert worker_count(Experiment(engine={"workers": 4, "backend": "ray"}), "cpu") == 1
