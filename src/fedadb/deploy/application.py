"""The Flower application: what `flwr run` is given, and what a site is told to accept.

It is two lines that name this package, and the experiment. Whoever has the experiment's file can
make it, byte for byte, and so knows its hash.
"""

from importlib.metadata import version
from pathlib import Path

import tomli_w

from fedadb.storage.files import write_atomically
from fedadb.experiment.config import Experiment

CODE = '''"""fedadb, as Flower finds it."""

from fedadb.deploy.client_app import app as client
from fedadb.deploy.server_app import app as server

__all__ = ["client", "server"]
'''


def write_application(directory: Path, experiment: Experiment) -> None:
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
                    # Where the server keeps the run and, if it is another than the one here,
                    # its own experiment's file is said when it is started.
                    "config": {"experiment": experiment.toml(), "server": "", "out": ""},
                }
            },
        },
    }
    (directory / "federation").mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "federation" / "__init__.py", CODE.encode())
    write_atomically(directory / "pyproject.toml", tomli_w.dumps(table).encode())
