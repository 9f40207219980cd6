"""Records as TensorBoard's event files."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedadb.experiment.observation import Observer
from fedadb.observers.tracked_run import require_package, scalars
from fedadb.storage.records import Record

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment


class TensorBoard(Observer):
    """Writes event files for TensorBoard to `tensorboard/` in the run's directory.

    It needs `pip install 'fedadb[tensorboard]'`.

    ```python
    fedadb.run(fedadb.Experiment(rounds=2), "run", observers=[fedadb.TensorBoard()])
    ```
    """

    def __init__(self) -> None:
        require_package("tensorboard")

    def start(self, experiment: "Experiment", directory: Path, done: Sequence[Record]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        events = directory / "tensorboard"
        # Rounds of earlier processes are written anew: event files cannot be shortened, and those
        # processes may not have written all.
        shutil.rmtree(events, ignore_errors=True)
        self.writer = SummaryWriter(str(events))
        for record in done:
            self.record(record)

    def record(self, record: Record) -> None:
        for name, value in scalars(record):
            self.writer.add_scalar(name, value, record["round"])
        self.writer.flush()

    def end(self, finished: bool, error: BaseException | None) -> None:
        self.writer.close()
