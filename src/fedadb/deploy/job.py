"""The job of an executor: what the server tells the process that trains with the sites."""

import json
from pathlib import Path
from typing import NamedTuple

from fedadb.storage.files import replace_file


class Job(NamedTuple):
    """The one run that an executor executes."""

    run: int  # Flower's number of it
    application: str  # the hash of the submitted application
    superlink: str  # `HOST:PORT`
    directory: str  # of the server: its certificate, its secret, and the sites that it accepts
    experiment: str  # TOML
    out: str  # the run's directory
    private: str  # the directory for the secrets of private runs
    from_round: int | None = None  # the round to return to
    any_kernels: bool = False  # whether to resume on other kernels

    def write(self, path: Path) -> None:
        """Write the job to a file that only its owner can read."""
        replace_file(path, json.dumps(self._asdict()).encode())

    @classmethod
    def read(cls, path: Path) -> "Job":
        return cls(**json.loads(path.read_text()))
