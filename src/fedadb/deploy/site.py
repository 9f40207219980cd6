"""A site of a federation: connects to the server and trains on its own data."""

import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedadb.core.errors import BadInput
from fedadb.datasets.arrays import noun
from fedadb.datasets.own import inspect_own, load_own
from fedadb.deploy import keys
from fedadb.deploy.agreement import known_spec, shared_experiment, write_application
from fedadb.deploy.ports import parse_address
from fedadb.deploy.roster import read_roster
from fedadb.deploy.site_keys import read_private_key
from fedadb.experiment.config import Experiment
from fedadb.storage.files import locked
from fedadb.storage.hash_chain import append_entry

EXPIRED = 10  # OpenSSL's code for a certificate that has expired
RETRY_SECONDS = 5.0  # between two attempts to reach a server that does not run yet


def run_site(
    directory: Path,
    experiment: Experiment,
    server: str,
    data: str,
    threads: int,
    log: Callable[[str], None],
    max_runs: int = 10,
) -> None:
    """Take part in the server's runs until the process is stopped.

    Args:
        directory: Holds the site's key and the authority's certificate; memories are stored there.
        experiment: This site's copy of the experiment.
        server: `HOST:PORT`.
        data: `npz:PATH`, `folder:PATH` or `csv:PATH`.
        threads: The number of threads to train with.
        log: Called with a line for everything that happens.
        max_runs: The number of runs of the experiment in which the site takes part.
    """
    from fedadb.deploy.audit_log import AUDIT
    from fedadb.deploy.client_app import app
    from fedadb.deploy.node import Node, application_hash, serve

    key, ca = directory / keys.SITE_KEY, directory / keys.CA
    if not key.is_file():
        raise BadInput(f"{key} is missing: `fedadb deploy keys {directory} --site` makes it")
    read_private_key(key)
    keys.require_valid(ca, "the authority's certificate, ca.crt")
    if warning := keys.expiry_warning(ca):
        log(warning)
    if experiment.deployment.secure_aggregation:
        roster = read_roster(directory)
        log(f"{roster.name} of the sites {', '.join(sorted(roster.public_keys))}")
        log(f"fingerprint of their keys, which must be the same at all: {roster.fingerprint}")
    host, port = parse_address(server, "--server")
    check_data(experiment, data)
    with tempfile.TemporaryDirectory() as temporary:
        write_application(Path(temporary) / "application", shared_experiment(experiment))
        accepted = application_hash(Path(temporary) / "application")
    log(f"accepts application {accepted[:12]} only")
    with locked(directory):  # two processes must not answer as the same site
        _wait_for_server(host, port, ca, log)
        state = str(directory.absolute() / "state")
        config = {"data": data, "state": state, "threads": threads, "max-runs": max_runs}
        config["directory"] = str(directory.absolute())
        audit = partial(append_entry, directory / AUDIT)
        serve(Node(app, accepted, config, experiment.toml(), log, audit), server, ca, key)


def check_data(e: Experiment, data: str) -> None:
    """Raise BadInput unless the site can train on its data, as far as it knows the federation's.

    The site checks them before it connects, so that the server does not wait for a site that
    cannot take part.
    """
    kind, _, path = data.partition(":")
    if kind not in ("npz", "folder", "csv") or not path:
        raise BadInput(f"--data {data}: must be npz:PATH, folder:PATH or csv:PATH")
    spec = known_spec(e)
    try:
        if spec is None:
            inspect_own(data, e.deployment.columns)
            return
        train, test = load_own(data, spec, e.deployment.columns)
    except BadInput as error:
        if e.deployment.classes or spec is None:
            raise
        raise BadInput(f"{error} (dataset = {e.dataset!r} in this site's experiment)") from error
    except OSError as error:
        raise BadInput(f"--data {data} cannot be read: {error.strerror or error}") from error
    if not len(train.y):
        raise BadInput(f"--data {data} has no {noun(train.x)} to train on")
    if e.deployment.evaluate != "server" and not len(test.y):
        raise BadInput(
            f"--data {data} has too few {noun(train.x)} per class to set some aside for testing, "
            f"but deployment.evaluate = {e.deployment.evaluate!r}"
        )


def _wait_for_server(host: str, port: int, ca: Path, log: Callable[[str], None]) -> None:
    """Wait until the server accepts connections; raise BadInput if waiting cannot help."""
    server = f"{host}:{port}"
    context = ssl.create_default_context(cafile=str(ca))
    logged = False
    while True:
        try:
            with (
                socket.create_connection((host, port), 10) as plain,
                context.wrap_socket(plain, server_hostname=host),
            ):
                return
        except ssl.SSLCertVerificationError as error:
            if error.verify_code == EXPIRED:  # the server's operator can renew it at any time
                if not logged:
                    log(
                        f"waiting for {server}, whose certificate has expired: its operator can "
                        "renew it with `fedadb deploy keys DIRECTORY --renew`"
                    )
                logged = True
                time.sleep(RETRY_SECONDS)
                continue
            raise BadInput(
                f"{server} has no certificate that {ca} signed: {error.verify_message}"
            ) from error
        except ssl.SSLEOFError:  # the server is starting or stopping
            time.sleep(1)
        except ssl.SSLError as error:
            raise BadInput(f"{server} does not use TLS: {error.reason}") from error
        except socket.gaierror as error:
            raise BadInput(f"--server {server}: {error.strerror}") from error
        except OSError as error:
            if not logged:
                log(f"waiting for {server}, which cannot be reached: {error.strerror or error}")
            logged = True
            time.sleep(RETRY_SECONDS)
