"""What a server and its sites must agree on: settings, the form of the data, the application.

A site accepts work only for the application that its own copy of the experiment makes. The
application names this package and the shared settings, so it is byte-identical wherever it is
made, and so is its hash.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from fedadb import datasets
from fedadb.core.data import DataSpec, Examples
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import flatten, merge, nested
from fedadb.experiment.settings import role
from fedadb.progress import Progress, no_progress
from fedadb.storage.files import write_atomically

CODE = '''"""The parts of fedadb that Flower runs."""

from fedadb.deploy.client_app import app as client
from fedadb.deploy.server_app import app as server

__all__ = ["client", "server"]
'''


def shared_settings(e: Experiment) -> dict[str, Any]:
    """The settings on which the server and all sites must agree, by dotted name."""
    return {key: value for key, value in flatten(e.table()).items() if role(key).shared}


def shared_experiment(e: Experiment) -> Experiment:
    """The experiment with its shared settings; all others have their defaults."""
    table: dict[str, Any] = {}
    for key, value in shared_settings(e).items():
        table = merge(table, nested(key, value))
    return Experiment.read(table)


def require_same_settings(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Raise BadInput unless this site's shared settings are the server's."""
    # Names come first: if one differs, so do the settings that belong to it.
    for key in sorted(here.keys() | there.keys(), key=lambda key: (".name" not in key, key)):
        if here.get(key) != there.get(key):
            raise BadInput(
                f"the server's experiment differs from this site's: {key} is {there.get(key)!r} "
                f"there and {here.get(key)!r} here; use the same file at both"
            )


def federation_data(
    e: Experiment, progress: Progress = no_progress
) -> tuple[DataSpec, Examples | None]:
    """The form of the federation's data, and the server's test data if it has any."""
    given = e.deployment
    if not given.classes and not given.shape:
        splits = datasets.load(e.dataset, progress)
        return splits.spec, splits.test
    if not (given.classes and len(given.shape) == 3):
        raise BadInput(
            "deployment: a server without data needs both classes and shape = [channels, height, "
            "width]"
        )
    if given.evaluate != "sites":
        raise BadInput(
            f"deployment.evaluate = {given.evaluate!r}: a server without data cannot evaluate; use "
            "'sites'"
        )
    channels = given.shape[0]
    transform = Transform(mean=(0.5,) * channels, std=(0.5,) * channels)  # as for npz and folders
    return DataSpec(given.classes, given.shape, transform), None


def write_application(directory: Path, experiment: Experiment) -> None:
    """Write the Flower application of the experiment, as `flwr run` takes it."""
    table = {
        "project": {
            "name": "fedadb-federation",
            "version": version("fedadb"),
            "description": "A federation of sites, trained by fedadb",
            "license": "MIT",
            "dependencies": [],
        },
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": ["federation"]}}}},
            "flwr": {
                "app": {
                    "publisher": "fedadb",
                    "components": {
                        "serverapp": "federation:server",
                        "clientapp": "federation:client",
                    },
                    # `flwr run` sets the last two: the file of the server's own experiment, if it
                    # differs from the one here, and the run's directory.
                    "config": {"experiment": experiment.toml(), "server": "", "out": ""},
                }
            },
        },
    }
    (directory / "federation").mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "federation" / "__init__.py", CODE.encode())
    write_atomically(directory / "pyproject.toml", tomli_w.dumps(table).encode())
