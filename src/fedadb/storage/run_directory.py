"""The names of the files in a run's directory."""

import re
from pathlib import Path

EXPERIMENT = "experiment.toml"  # the resolved experiment, runnable as it is
DISCLOSURE = "who-learns-what.md"  # what the settings let each party of a federation learn
ENVIRONMENT = "environment.json"  # versions, commit, machine, digests of the user's own code
PARTITION = "partition.json"  # class names, and how many rows of each class every client holds
ROUNDS = "rounds.jsonl"  # one record per round
CHECKPOINT = "checkpoint.safetensors"  # everything needed to resume
EARLIER_CHECKPOINTS = 2  # that stay beside it, as checkpoint-0007.safetensors
MODEL = "model.safetensors"  # the deployed weights, written at the end
MEMORIES = "memories"  # what clients remember between rounds, one file per client
ANALYSIS = "analysis"  # results of `fedadb analyse`: JSON and figures
TRACKED = "trackers.json"  # the names that MLflow and W&B have given to the run
SITES = "sites.json"  # of a real federation: which site is which client, and the data's shape


def personal_file(directory: Path, t: int) -> Path:
    """The accuracy of each client's personal models after round t."""
    return directory / f"personal-{t:04}.json"


def kept_file(directory: Path, t: int) -> Path:
    """What the algorithm kept of its broadcast in round t."""
    return directory / f"kept-{t:04}.safetensors"


def kept_files(directory: Path) -> dict[int, Path]:
    """All such files by round, in order."""
    return _numbered(directory, "kept")


def earlier_checkpoint(directory: Path, t: int) -> Path:
    """The checkpoint after round t, when there is a newer one."""
    return directory / f"checkpoint-{t:04}.safetensors"


def earlier_checkpoints(directory: Path) -> dict[int, Path]:
    """All such files by round, in order."""
    return _numbered(directory, "checkpoint")


def _numbered(directory: Path, name: str) -> dict[int, Path]:
    found = {}
    for path in directory.glob(f"{name}-*.safetensors"):
        if match := re.fullmatch(rf"{name}-(\d+)", path.stem):
            found[int(match[1])] = path
    return dict(sorted(found.items()))
