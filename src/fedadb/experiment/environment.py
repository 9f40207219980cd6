"""environment.json: the versions, commit and machine of a run."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedadb.core.errors import Fault
from fedadb.experiment.build import pick_device
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import own_code
from fedadb.kernels.selection import TORCH
from fedadb.storage.files import read_json, write_atomically

ENVIRONMENT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
PACKAGES = ("fedadb", "torch", "numpy", "scikit-learn", "safetensors")


def note_environment(path: Path, t: int, experiment: Experiment, kernels: str) -> None:
    """Write the environment in which the run starts; if it resumes in another one, append that."""
    current = environment(experiment, kernels)
    if not path.exists():
        write_atomically(path, json.dumps(current, indent=2).encode())
        return
    recorded = read_json(path, ENVIRONMENT)
    later = recorded.setdefault("later", [])
    if not isinstance(later, list) or not all(isinstance(one, dict) for one in later):
        raise Fault(f"{path} is damaged: `later` is not a list of tables; delete it")
    # An earlier version had torch's kernels only, and did not record them.
    last = {"kernels": TORCH} | (later[-1] if later else recorded)
    if any(last.get(key) != value for key, value in current.items()):
        later.append({"after_round": t, **current})
        write_atomically(path, json.dumps(recorded, indent=2).encode())


def environment(experiment: Experiment, kernels: str) -> dict[str, Any]:
    return {
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "device": str(pick_device(experiment.engine.device)),
        "kernels": kernels,
        "own_code": own_code(experiment),
    }


def _commit() -> str | None:
    """The commit of fedadb itself if it runs from a checkout; "+" marks uncommitted changes."""
    package = Path(__file__).parent.parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
