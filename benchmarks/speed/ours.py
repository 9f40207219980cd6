"""fedadb itself, as `fedadb run` runs it."""

import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.speed.workload import Workload, report
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run


def main() -> None:
    work = Workload.from_environment()
    with tempfile.TemporaryDirectory() as folder:
        x, y, test_x, test_y = work.data()
        nhwc = [part.transpose(0, 2, 3, 1) for part in (x, test_x)]
        path = Path(folder) / "work.npz"
        np.savez(path, x_train=nhwc[0], y_train=y, x_test=nhwc[1], y_test=test_y)
        table = {
            "dataset": f"npz:{path}",
            "model": work.model,
            "rounds": work.rounds,
            "federation": {
                "clients": work.clients,
                "participation": work.sampled / work.clients,
                "partition": "iid",
            },
            "local": {
                "epochs": work.epochs,
                "batch_size": work.batch,
                "lr": work.lr,
                "schedule": "constant",
                "optimizer": {"name": "sgd", "momentum": work.momentum},
                "weight_decay": 0.0,
            },
            "algorithm": os.environ.get("ALGORITHM", "fedavg"),
            "engine": {
                "workers": int(os.environ["WORKERS"]) if "WORKERS" in os.environ else "auto",
                "precision": os.environ.get("PRECISION", "float32"),
                "kernels": os.environ.get("KERNELS", "auto"),
            },
        }
        history = run(Experiment.read(table), Path(folder) / "run")
        report([record["seconds"] for record in history.rounds], history.accuracy[-1])


if __name__ == "__main__":
    main()
