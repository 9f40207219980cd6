"""The example with three hospitals runs, and resumes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedadb.deploy.ports import free_port
from tests.deploy.federation import GUARD, ROOT

# Slow, because each starts two federations of four processes.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("federation")]


@pytest.mark.parametrize("options", [[], ["--private"]], ids=["open", "private"])
def test_hospitals(options: list[str], no_data: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ROUNDS": "2", "PORT": str(free_port())}
    script = ROOT / "examples" / "hospitals" / "run.sh"
    words = [str(script), *options, str(tmp_path / "h")]
    for _ in range(2):  # the second time, the run is finished already
        done = subprocess.run(
            words, env=environment, stdout=subprocess.PIPE, text=True, timeout=2 * GUARD
        )
        assert done.returncode == 0
        assert "the images of hospital-2" in done.stdout
    assert "finished earlier" in done.stdout
    assert ("images together" in done.stdout) == bool(options)
    assert ("replies of hospital-2 are in both logs" in done.stdout) == bool(options)
