"""Files that are either there whole or not there, and directories with one owner."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedadb.core.errors import BadInput

# What lies in the directory of a run.
EXPERIMENT = "experiment.toml"  # resolved, and runnable as it is
ENVIRONMENT = "environment.json"  # versions, commit, machine
PARTITION = "partition.json"  # the classes' names, and who holds how many rows of each
ROUNDS = "rounds.jsonl"  # what happened, a line a round
CHECKPOINT = "checkpoint.safetensors"  # everything needed to go on
MODEL = "model.safetensors"  # the deployed weights, in the end
ANALYSIS = "analysis"  # what was found in it later: a JSON file and pictures for each analysis
SITES = "sites.json"  # of a real federation: who is client 0, 1, …, and what the images are
MEMORIES = "memories"  # what clients remember, a file each


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file in one move, so that a crash leaves the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Keep other processes out of the directory; the system lets go when this process ends."""
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"another process is at work in {directory}") from error
        yield
