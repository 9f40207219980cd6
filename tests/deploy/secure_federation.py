"""Three sites in this process that have each other's public keys, for secure aggregation."""

from pathlib import Path
from typing import Any

import numpy as np

from fedadb.deploy import keys
from fedadb.deploy.client_app import app
from fedadb.deploy.roster import ROSTER
from fedadb.experiment.build import build_data
from fedadb.experiment.config import Experiment
from tests.deploy.fake_grid import FakeGrid, FakeNode, Handler

NAMES = ("east", "north", "west")


def experiment(algorithm: Any = "fedavg", rounds: int = 3, **settings: Any) -> Experiment:
    """Three sites with secure aggregation; settings are those of `[deployment]`."""
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "local": {"epochs": 1},
            "federation": {"clients": 3, "participation": 1.0},
            "engine": {"workers": 1},
            "deployment": {"secure_aggregation": True, **settings},
        }
    )


def make_sites(directory: Path, e: Experiment) -> None:
    """Give each site the rows of one client, a key, and the public keys of all."""
    for name, shard in zip(NAMES, build_data(e).shards, strict=True):
        site = directory / name
        keys.make_site_keys(site)
        x = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy()
        y = shard.labels.numpy()
        np.savez(site / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    for name in NAMES:
        copy_roster(directory, name)


def copy_roster(directory: Path, name: str) -> None:
    roster = directory / name / ROSTER
    roster.mkdir(exist_ok=True)
    for other in NAMES:
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
