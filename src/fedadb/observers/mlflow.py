"""Records as metrics of an MLflow run."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedadb.experiment.observation import Observer
from fedadb.observers.tracked_run import read_id, require_package, scalars, settings, write_id
from fedadb.storage.records import Record

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

PROJECT = "fedadb"  # MLflow calls it an experiment
AT_ONCE = 100  # parameters or metrics in one request; MLflow takes no more parameters
MAX_LENGTH = 500  # characters of a parameter: what every store of MLflow takes


class MLflow(Observer):
    """Writes settings and rounds to MLflow's files in `mlruns/`, without a server.

    If MLFLOW_TRACKING_URI is set, they go there instead. A resumed run continues its MLflow run. It
    needs `pip install 'fedadb[mlflow]'`.

    ```python
    fedadb.run(fedadb.Experiment(rounds=2), "run", observers=[fedadb.MLflow()])
    ```
    """

    def __init__(self) -> None:
        # It would report its use to its makers over the network.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        require_package("mlflow")

    def start(self, experiment: "Experiment", directory: Path, done: Sequence[Record]) -> None:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # recent versions insist on it
        files = Path("mlruns").absolute().as_uri()
        self.client: Any = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", files))
        try:
            self.name = read_id(directory, "mlflow") or self._create(experiment, directory)
            self.client.update_run(self.name, status="RUNNING")
        except MlflowException:  # the store has no such run, or no longer
            self.name = self._create(experiment, directory)
        # MLflow would add a round that is written twice, and cannot remove one.
        history = self.client.get_metric_history(self.name, "accuracy")
        self.written = {metric.step for metric in history}
        for record in done:
            self.record(record)

    def record(self, record: Record) -> None:
        from mlflow.entities import Metric

        t, now = record["round"], int(time.time() * 1000)
        if t in self.written:
            return
        metrics = [Metric(name, value, now, t) for name, value in scalars(record)]
        # The accuracy comes last: a round that has it was written completely.
        metrics.sort(key=lambda metric: bool(metric.key == "accuracy"))
        for i in range(0, len(metrics), AT_ONCE):
            self.client.log_batch(self.name, metrics=metrics[i : i + AT_ONCE])
        self.written.add(t)

    def end(self, finished: bool, error: BaseException | None) -> None:
        stopped = error is None or isinstance(error, KeyboardInterrupt)
        status = "FINISHED" if finished else "KILLED" if stopped else "FAILED"
        self.client.set_terminated(self.name, status)

    def _create(self, experiment: "Experiment", directory: Path) -> str:
        """A new MLflow run with the experiment's settings."""
        from mlflow.entities import Param

        found = self.client.get_experiment_by_name(PROJECT)
        project = found.experiment_id if found else self.client.create_experiment(PROJECT)
        name = str(self.client.create_run(project, run_name=directory.name).info.run_id)
        params = [Param(key, shorten(str(v))) for key, v in settings(experiment).items()]
        for i in range(0, len(params), AT_ONCE):
            self.client.log_batch(name, params=params[i : i + AT_ONCE])
        write_id(directory, "mlflow", name)
        return name


def shorten(text: str) -> str:
    """The text, or its beginning if MLflow would refuse it."""
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
