"""What a server and its sites must agree on: settings, the form of the data, the application.

A site accepts work only for the application that its own copy of the experiment makes. The
application names this package and the shared settings, so it is byte-identical wherever it is
made, and so is its hash.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from fedadb import datasets
from fedadb.core.columns import inputs_of
from fedadb.core.data import DataSpec, Examples
from fedadb.core.errors import BadInput
from fedadb.core.transform import Bounded, Transform
from fedadb.deploy.messages import MAX_VALUES, VERSION, shown
from fedadb.deploy.refusals import OTHER_EXPERIMENT, OTHER_VERSION, Refusal
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import role
from fedadb.experiment.toml_tables import flatten, merge, nested
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
    require_no_attack(e)
    table: dict[str, Any] = {}
    for key, value in flatten(e.table()).items():
        # Filters are a list, and names of columns may have dots.
        if role(key).shared and not key.startswith(("filter", "deployment.columns.")):
            table = merge(table, nested(key, value))
    table["filter"] = e.table()["filter"]
    return Experiment.read(merge(table, {"deployment": {"columns": e.deployment.columns}}))


def require_no_attack(e: Experiment) -> None:
    """Raise BadInput if the experiment has an attack: the sites are real."""
    if e.attack is not None:
        raise BadInput(
            "attack: attacks are for simulations, and these sites are real; leave it out"
        )


def require_same_settings(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Raise a Refusal unless this site's shared settings are the server's."""
    # Names come first: if one differs, so do the settings that belong to it.
    for key in sorted(here.keys() | there.keys(), key=lambda key: (".name" not in key, key)):
        if here.get(key) != there.get(key):
            raise Refusal(
                OTHER_EXPERIMENT,
                f"the server's experiment differs from this site's: {shown(key, 60)} is "
                f"{_short(there.get(key))} there and {_short(here.get(key))} here; use the same "
                "file at both",
                travels=True,
            )


def require_same_version(there: object) -> None:
    """Raise a Refusal unless the server's version of fedadb is this site's."""
    if there != VERSION:
        raise Refusal(
            OTHER_VERSION,
            f"the server has version {_short(there)} of fedadb, and this site {VERSION!r}; install "
            "the same at both",
            travels=True,
        )


def _short(value: object) -> str:
    """The value of a setting, which may come from the other side."""
    return shown(repr(value), 80)


def known_spec(e: Experiment) -> DataSpec | None:
    """The form of the federation's data as this machine knows it; None: only the server does."""
    if _has_given_spec(e):
        return _given_spec(e)
    with suppress(BadInput):  # it may be damaged here: a site does not need the server's dataset
        if datasets.present(e.dataset):
            return datasets.load(e.dataset).spec
    return None


def federation_data(
    e: Experiment, progress: Progress = no_progress
) -> tuple[DataSpec, Examples | None]:
    """The form of the federation's data, and the server's test data if it has any."""
    given = e.deployment
    if not (given.classes or given.shape or given.columns):
        splits = datasets.load(e.dataset, progress)
        if isinstance(splits.transform, Bounded):
            _require_short(math.prod(splits.spec.shape))
        return splits.spec, splits.test
    if not _has_given_spec(e):
        raise BadInput(
            "deployment: a server without data needs both classes and shape = [channels, height, "
            "width]; for tables, classes and columns"
        )
    if given.evaluate != "sites":
        raise BadInput(
            f"deployment.evaluate = {given.evaluate!r}: a server without data cannot evaluate; use "
            "'sites'"
        )
    return _given_spec(e), None


def _has_given_spec(e: Experiment) -> bool:
    given = e.deployment
    return bool(given.classes) and (len(given.shape) == 3 or bool(given.columns))


def _given_spec(e: Experiment) -> DataSpec:
    classes, shape = e.deployment.classes, e.deployment.shape
    if e.deployment.columns:
        inputs = inputs_of(e.deployment.columns)
        _require_short(len(inputs.low))
        return DataSpec(classes, (len(inputs.low),), Bounded(*inputs))
    transform = Transform(mean=(0.5,) * shape[0], std=(0.5,) * shape[0])  # as for npz and folders
    return DataSpec(classes, shape, transform)


def _require_short(values: int) -> None:
    if values > MAX_VALUES:
        raise BadInput(
            f"the inputs have {values} values each; a federation of sites takes vectors of at "
            f"most {MAX_VALUES}"
        )


def write_application(directory: Path, experiment: Experiment) -> None:
    """Write the Flower application of the experiment, as `flwr run` takes it."""
    table = {
        "project": {
            "name": "fedadb-federation",
            "version": VERSION,
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
                    # `flwr run` sets the last one on Flower's own runtime: the run's directory.
                    "config": {"experiment": experiment.toml(), "out": ""},
                }
            },
        },
    }
    (directory / "federation").mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "federation" / "__init__.py", CODE.encode())
    write_atomically(directory / "pyproject.toml", tomli_w.dumps(table).encode())
