"""Three sites in this process that have each other's public keys, for secure aggregation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedadb.deploy import keys
from fedadb.deploy.client_app import app
from fedadb.deploy.roster import ROSTER
from fedadb.experiment.build import build_data
from fedadb.experiment.config import Experiment
from tests.deploy.asked_site import write_data
from tests.deploy.fake_grid import FakeGrid, FakeNode, Handler

NAMES = ("east", "north", "west")


def experiment(algorithm: Any = "fedavg", rounds: int = 3, **deployment: Any) -> Experiment:
    """Three sites with secure aggregation."""
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "local": {"epochs": 1},
            "federation": {"clients": 3, "participation": 1.0},
            "engine": {"workers": 1},
            "deployment": {"secure_aggregation": True, **deployment},
        }
    )


def make_sites(directory: Path, names: Sequence[str] = NAMES) -> Path:
    """Give each site a few rows, a key, and the public keys of all."""
    for k, name in enumerate(names):
        keys.make_site_keys(directory / name)
        write_data(directory / name / "data.npz", rows=10 + 5 * k)
    for name in names:
        copy_roster(directory, name, names)
    return directory


def give_rows_of_clients(directory: Path, e: Experiment) -> None:
    """Give each site the rows of one client of the simulation."""
    for name, shard in zip(NAMES, build_data(e).shards, strict=True):
        x = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy()
        y = shard.labels.numpy()
        file = directory / name / "data.npz"
        np.savez(file, x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])


def copy_roster(directory: Path, name: str, names: Sequence[str] = NAMES) -> None:
    roster = directory / name / ROSTER
    roster.mkdir(exist_ok=True)
    for other in names:
        public = (directory / other / keys.SITE_PUBLIC).read_bytes()
        (roster / f"{other}.pub").write_bytes(public)


def config(directory: Path, name: str) -> dict[str, Any]:
    site = directory / name
    return {
        "data": f"npz:{site / 'data.npz'}",
        "state": str(site / "state"),
        "directory": str(site),
        "max-runs": 100,
    }


def grid(directory: Path, e: Experiment, handles: dict[str, Handler] | None = None) -> FakeGrid:
    """The sites of a directory, some of them with handlers of their own."""
    handles = handles or {}
    nodes = [FakeNode(config(directory, name), name, handles.get(name, app)) for name in NAMES]
    return FakeGrid(e.toml(), nodes)


def secagg_files(directory: Path, name: str, pattern: str) -> list[Path]:
    return sorted((directory / name / "state").glob(f"*/secagg/{pattern}"))
