"""Where a run was made: what one needs to know to make it again."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedadb.core.files import write_whole

PACKAGES = ("fedadb", "torch", "numpy", "scikit-learn", "safetensors")


def note_environment(path: Path, t: int, device: torch.device) -> None:
    """Write where the run starts; where it goes on after round t, if that is elsewhere."""
    here = environment(device)
    if not path.exists():
        write_whole(path, json.dumps(here, indent=2).encode())
        return
    known = json.loads(path.read_text())
    later = known.setdefault("later", [])
    last = later[-1] if later else known
    if any(last.get(key) != value for key, value in here.items()):
        later.append({"after_round": t, **here})
        write_whole(path, json.dumps(known, indent=2).encode())


def environment(device: torch.device) -> dict[str, Any]:
    return {
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        "device": str(device),
    }


def _commit() -> str | None:
    """The commit of fedadb itself when it runs from a checkout; "+" marks changes since."""
    here = Path(__file__).parent.parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
