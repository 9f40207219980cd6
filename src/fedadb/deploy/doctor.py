"""Checks of a server's or a site's set-up: one sentence each, with the way out.

A check returns what it found, or raises BadInput or Fault with a sentence that says what to do.
"""

import datetime as dt
import shutil
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import NamedTuple

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys, way_to_server
from fedadb.deploy.accepted_sites import require_keys, site_names
from fedadb.deploy.agreement import federation_data
from fedadb.deploy.certificates import end_of
from fedadb.deploy.ports import here, is_open, parse_address, require_free_port
from fedadb.deploy.roster import read_roster
from fedadb.deploy.site import check_data
from fedadb.deploy.site_keys import fingerprint, public_line, read_private_key, read_public_key
from fedadb.experiment.config import Experiment

FREE_BYTES = 1 << 30  # that the disk should have
SECONDS = 5.0  # to wait for a program on this machine


class Finding(NamedTuple):
    """What a check found."""

    what: str
    sentence: str
    ok: bool


class Check(NamedTuple):
    what: str
    run: Callable[[], str]


def findings(checks: list[Check]) -> Iterator[Finding]:
    """Run the checks one after the other; each may fail."""
    for what, run in checks:
        try:
            yield Finding(what, run(), ok=True)
        except (BadInput, Fault) as error:
            yield Finding(what, str(error), ok=False)
        except OSError as error:
            path = f"{error.filename}: " if error.filename else ""
            yield Finding(what, f"{path}{error.strerror or error}", ok=False)


def server_checks(directory: Path, experiment: Experiment | None, listen: str) -> list[Check]:
    """The checks of a server; without an experiment, its data are not checked."""
    checks = [
        Check("versions", versions),
        Check("keys", lambda: _server_keys(directory)),
        Check("certificate", lambda: _certificate(directory / keys.SERVER)),
        Check("authority", lambda: _certificate(directory / keys.CA)),
        Check("clock", lambda: _clock_of_server(directory)),
        Check("port", lambda: _port(listen, directory / keys.CA)),
        Check("disk", lambda: _disk(directory)),
    ]
    if experiment is not None:
        checks.append(Check("sites", lambda: _sites(directory, experiment)))
        checks.append(Check("data", lambda: _server_data(experiment)))
    return checks


def site_checks(
    directory: Path, experiment: Experiment | None, server: str | None, data: str | None
) -> list[Check]:
    """The checks of a site; what is not given is not checked."""
    checks = [
        Check("versions", versions),
        Check("keys", lambda: _site_keys(directory)),
        Check("authority", lambda: _certificate(directory / keys.CA)),
        Check("disk", lambda: _disk(directory)),
    ]
    if experiment is not None and experiment.deployment.secure_aggregation:
        checks.append(Check("roster", lambda: _roster(directory)))
    if experiment is not None and data is not None:
        checks.append(Check("data", lambda: _site_data(experiment, data)))
    if server is not None:
        checks += [
            Check("server", lambda: way_to_server.answers(directory, server)),
            Check("clock", lambda: way_to_server.same_clock(directory, server)),
            Check("access", lambda: way_to_server.accepts_site(directory, server)),
        ]
    return checks


def versions() -> str:
    """The versions on which a server and its sites must agree, and others."""
    names = ("fedadb", "flwr", "torch")
    installed = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{installed}, Python {python_version()}; the first two must be the same everywhere"


def _server_keys(directory: Path) -> str:
    require_keys(directory)
    for name in (keys.CA_KEY, keys.SERVER_KEY, keys.SECRET):
        _require_owner_only(directory / name)
    sites = site_names(directory)
    return f"all files are there, and the keys of {len(sites)} sites: {', '.join(sites)}"


def _site_keys(directory: Path) -> str:
    key = directory / keys.SITE_KEY
    if not key.is_file():
        raise BadInput(f"{key} is missing: `fedadb deploy keys {directory} --site` makes it")
    public = public_line(read_private_key(key).public_key())
    _require_owner_only(key)
    given = directory / keys.SITE_PUBLIC  # what the server has got, or will get
    if given.exists() and public_line(read_public_key(given)) != public:
        raise BadInput(f"{given} is not the public half of {key}: make new keys in a new directory")
    return f"this site's key has the fingerprint {fingerprint(public)}"


def _roster(directory: Path) -> str:
    roster = read_roster(directory)
    return (
        f"this is {roster.name} of {', '.join(sorted(roster.public_keys))}; all of them must see "
        f"the fingerprint {roster.fingerprint}"
    )


def _require_owner_only(path: Path) -> None:
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadInput(f"others can read {path}: `chmod 600 {path}`")


def _certificate(path: Path) -> str:
    keys.require_valid(path, "a certificate of the federation")
    if warning := keys.expiry_warning(path):
        raise BadInput(warning)
    return f"{path.name} is valid until {end_of(path.read_bytes()):%d %B %Y}"


def _clock_of_server(directory: Path) -> str:
    now, made = dt.datetime.now(dt.UTC), (directory / keys.CA).stat().st_mtime
    shown = f"the clock says {now:%d %B %Y %H:%M} UTC"
    if now.timestamp() < made:
        raise BadInput(f"{shown}, before the keys were made: set it")
    return f"{shown}; sites compare theirs with it"


def _port(listen: str, authority: Path) -> str:
    host, port = parse_address(listen, "--listen")
    if not is_open(host, port):
        require_free_port(host, port, "--listen")
        return f"{listen} is free; sites must reach it through the firewall"
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False  # sites have other names for it
    try:
        with (
            socket.create_connection((here(host), port), SECONDS) as plain,
            context.wrap_socket(plain),
        ):
            return f"the server runs, and listens at {listen}"
    except OSError as error:  # ssl.SSLError is an OSError too
        raise BadInput(
            f"a program listens at {listen} that has no valid certificate of {authority.name}: if "
            "it is not this server, stop it or choose another --listen"
        ) from error


def _disk(directory: Path) -> str:
    free = shutil.disk_usage(directory).free
    if free < FREE_BYTES:
        raise BadInput(f"{directory} has {free / 1e9:.1f} GB left: make room for at least 1 GB")
    return f"{free / 1e9:.0f} GB are free"


def _sites(directory: Path, e: Experiment) -> str:
    names, needed = site_names(directory), e.federation.clients
    if len(names) > needed:
        raise BadInput(
            f"{directory / keys.SITES} has the keys of {len(names)} sites, but federation.clients "
            f"= {needed}: change the number, or remove keys"
        )
    if len(names) < needed:
        return f"{len(names)} of {needed} have a key here; the server waits for the others"
    return f"all {needed} have a key here"


def _server_data(e: Experiment) -> str:
    spec, test = federation_data(e)
    rows = "no test data of its own" if test is None else f"{len(test.y)} test rows"
    return f"{len(spec.classes)} classes of shape {spec.shape}, and {rows}"


def _site_data(e: Experiment, data: str) -> str:
    check_data(e, data)
    return f"{data} can be trained on"
