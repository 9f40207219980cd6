"""A site of a federation: a node that asks the server for work, and trains on what lies here."""

import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedadb.core.errors import BadInput
from fedadb.storage.files import locked
from fedadb.deploy import keys
from fedadb.deploy.address import read_address
from fedadb.deploy.application import write_application
from fedadb.deploy.task import agreed
from fedadb.experiment.config import Experiment

AGAIN = 5.0  # seconds between tries to reach a server that is not up yet


class Place(NamedTuple):
    """Where a site finds what it needs."""

    directory: Path  # its key, the authority's certificate, and what it remembers
    server: str  # HOST:PORT
    data: str  # npz:PATH or folder:PATH
    threads: int = 1


def join(place: Place, experiment: Experiment, tell: Callable[[str], None]) -> None:
    """Take part, until the process is told to end."""
    from fedadb.deploy.client_app import app
    from fedadb.deploy.node import Node, application_hash, serve

    key, ca = place.directory / keys.SITE_KEY, place.directory / keys.CA
    if not key.is_file():
        raise BadInput(f"{key} is missing: `fedadb deploy keys {place.directory} --site` makes it")
    keys.require_private(key)
    keys.require_valid(ca, "the authority's certificate, ca.crt")
    read_address(place.server, "--server")
    kind, _, path = place.data.partition(":")
    if kind not in ("npz", "folder") or not path:
        raise BadInput(f"--data {place.data}: must be npz:PATH or folder:PATH")
    if not Path(path).expanduser().exists():
        raise BadInput(f"--data {place.data}: {path} does not exist")
    with tempfile.TemporaryDirectory() as made:
        write_application(Path(made) / "application", agreed(experiment))
        accepted = application_hash(Path(made) / "application")
    tell(f"accepts application {accepted[:12]} alone")
    with locked(place.directory):  # two processes would both answer as this site
        _reach(place.server, ca, tell)
        state = str(place.directory.absolute() / "state")
        config = {"data": place.data, "state": state, "threads": place.threads}
        serve(Node(app, accepted, config, experiment.toml(), tell), place.server, ca, key)


def _reach(server: str, ca: Path, tell: Callable[[str], None]) -> None:
    """Wait for the server; what waiting cannot mend is told at once."""
    host, port = read_address(server, "--server")
    context = ssl.create_default_context(cafile=str(ca))
    waiting = False
    while True:
        try:
            with (
                socket.create_connection((host, port), 10) as plain,
                context.wrap_socket(plain, server_hostname=host),
            ):
                return
        except ssl.SSLCertVerificationError as error:
            raise BadInput(
                f"{server} is not the server that {ca} vouches for: {error.verify_message}"
            ) from error
        except ssl.SSLEOFError:  # it is going down, or coming up
            time.sleep(1)
        except ssl.SSLError as error:
            raise BadInput(f"{server} does not speak TLS: {error.reason}") from error
        except socket.gaierror as error:
            raise BadInput(f"--server {server}: {error.strerror}") from error
        except OSError as error:
            if not waiting:
                tell(f"{server} cannot be reached yet ({error.strerror or error}); waiting for it")
            waiting = True
            time.sleep(AGAIN)
