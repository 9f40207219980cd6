"""Records as the history of a Weights & Biases run."""

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedadb.experiment.observation import Observer
from fedadb.observers.tracked_run import read_id, require_package, scalars, settings, write_id
from fedadb.storage.records import Record

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment


class WandB(Observer):
    """Writes an offline run of Weights & Biases to `wandb/` in the run's directory.

    Nothing is sent: `wandb sync DIRECTORY/wandb/offline-run-*` uploads it. A resumed run keeps its
    W&B id. It needs `pip install 'fedadb[wandb]'`.

    ```python
    fedadb.run(fedadb.Experiment(rounds=2), "run", observers=[fedadb.WandB()])
    ```
    """

    def __init__(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers, over the network
        require_package("wandb")

    def start(self, experiment: "Experiment", directory: Path, done: Sequence[Record]) -> None:
        import wandb

        name = read_id(directory, "wandb") or secrets.token_hex(8)
        write_id(directory, "wandb", name)
        # An offline run cannot be continued, so that of an earlier process is written anew.
        shutil.rmtree(directory / "wandb", ignore_errors=True)
        self.run: Any = wandb.init(
            project="fedadb",
            name=directory.name,
            id=name,
            dir=directory,
            mode="offline",
            config=settings(experiment),
            settings=wandb.Settings(console="off", silent=True),
        )
        for record in done:
            self.record(record)

    def record(self, record: Record) -> None:
        self.run.log(dict(scalars(record)), step=record["round"])

    def end(self, finished: bool, error: BaseException | None) -> None:
        self.run.finish(exit_code=0 if finished else 1)
