"""Certificates, keys and secrets of a federation. Each is made on the machine that keeps it."""

import datetime as dt
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedadb.core.errors import BadInput
from fedadb.deploy.certificates import (
    after,
    end_of,
    is_key_of,
    make_authority,
    make_certificate,
    names_of,
    site_problem,
    subject_name,
)
from fedadb.deploy.site_keys import public_line
from fedadb.storage.files import create_file, replace_file

CA, CA_KEY = "ca.crt", "ca.key"  # every site gets the first; the second stays at the server
SERVER, SERVER_KEY = "server.crt", "server.key"
# The SuperLink's own certificate, for connections within the server's machine. It is valid for as
# long as the authority's, because the SuperLink cannot change it while it runs.
SUPERLINK, SUPERLINK_KEY = "superlink.crt", "superlink.key"
SECRET = "runtime.secret"  # shared by the SuperLink and our executor
SITE_KEY, SITE_PUBLIC = "site.key", "site.pub"  # the server gets the second
SITES = "sites"  # the server's directory with NAME.pub for each site that may take part
LOCAL = ("localhost", "127.0.0.1")
MAX_DAYS = 36_500
AUTHORITY_TERMS = 10  # the authority is valid for so many terms of the server's certificate
WARNING_DAYS = 30  # before a certificate ends


def make_server_keys(directory: Path, hosts: Sequence[str], days: int) -> None:
    """Make a certificate authority, a certificate for the server's names, and a secret."""
    for name in (CA, CA_KEY, SERVER, SERVER_KEY, SUPERLINK, SUPERLINK_KEY, SECRET):
        _require_new(directory / name)
    names = [subject_name(host) for host in dict.fromkeys([*hosts, *LOCAL])]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / SITES).mkdir(exist_ok=True)
    last = after(min(MAX_DAYS, AUTHORITY_TERMS * days))
    authority = make_authority(last)
    server = make_certificate(authority.key, names, after(days))
    superlink = make_certificate(authority.key, [subject_name(host) for host in LOCAL], last)
    for (certificate, key), made in (
        ((CA, CA_KEY), authority),
        ((SERVER, SERVER_KEY), server),
        ((SUPERLINK, SUPERLINK_KEY), superlink),
    ):
        create_file(directory / key, made.key)
        create_file(directory / certificate, made.certificate, 0o644)
    create_file(directory / SECRET, secrets.token_hex(32).encode())


def renew_server_certificate(directory: Path, hosts: Sequence[str], days: int) -> None:
    """Replace the server's certificate and key by new ones of the same authority.

    The sites notice nothing, because they know the authority. The new certificate has the names of
    the old one, and the given ones.
    """
    require_valid(directory / CA, "the authority's certificate")
    for name in (CA_KEY, SERVER):
        if not (directory / name).is_file():
            raise BadInput(f"{directory / name} is missing: a new certificate is made from it")
    try:
        fits = is_key_of((directory / CA_KEY).read_bytes(), (directory / CA).read_bytes())
    except Exception as error:  # cryptography raises many kinds for a damaged file
        raise BadInput(f"{directory / CA_KEY} is not an authority's key: {error}") from error
    if not fits:
        raise BadInput(
            f"{directory / CA_KEY} is not the key of {CA}: sites would not trust what it signs"
        )
    names = names_of((directory / SERVER).read_bytes())
    names += [subject for host in hosts if (subject := subject_name(host)) not in names]
    ends = min(after(days), end_of((directory / CA).read_bytes()))
    made = make_certificate((directory / CA_KEY).read_bytes(), names, ends)
    for name, content, mode in ((SERVER_KEY, made.key, 0o600), (SERVER, made.certificate, 0o644)):
        replace_file(directory / name, content, mode)


def require_server_keys(directory: Path) -> None:
    """Raise BadInput unless the directory holds the keys that a server needs."""
    for name, what in ((CA, "the authority's certificate"), (SERVER, "the server's")):
        require_valid(directory / name, what)
    for name in (SERVER_KEY, SUPERLINK, SUPERLINK_KEY, SECRET):
        if not (directory / name).is_file():
            raise BadInput(f"{directory / name} is missing: `fedadb deploy keys` makes it")
    certificate = directory / SERVER
    if problem := site_problem(certificate, directory / SERVER_KEY, directory / CA):
        raise BadInput(f"{problem}; {_way_out(certificate)}")


def make_site_keys(directory: Path) -> None:
    """Make the key by which the server recognises a site. Its private half stays at the site."""
    for name in (SITE_KEY, SITE_PUBLIC):
        _require_new(directory / name)
    if (directory / CA_KEY).exists():
        raise BadInput(
            f"{directory} has the server's keys: a site makes its key in a directory of its own"
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    create_file(directory / SITE_KEY, private)
    create_file(directory / SITE_PUBLIC, public_line(key.public_key()).encode(), 0o644)


def require_valid(path: Path, what: str) -> None:
    """Raise BadInput unless the file is a certificate that has not expired."""
    if not path.is_file():
        raise BadInput(
            f"{path} is missing: it is {what}, which `fedadb deploy keys` makes at the server"
        )
    try:
        ends = end_of(path.read_bytes())
    except Exception as error:  # cryptography raises many kinds for a damaged file
        raise BadInput(f"{path} is not a certificate: {error}") from error
    if ends < dt.datetime.now(dt.UTC):
        raise BadInput(f"{path} expired on {ends:%d %B %Y}: {_way_out(path)}")


def expiry_warning(path: Path) -> str | None:
    """A sentence if the certificate ends within 30 days; None also while it is being replaced."""
    try:
        ends = end_of(path.read_bytes())
    except (OSError, ValueError):
        return None
    days = (ends - dt.datetime.now(dt.UTC)).days
    if days >= WARNING_DAYS:
        return None
    return f"{path} expires on {ends:%d %B %Y}, in {max(0, days)} days: {_way_out(path)}"


def _way_out(path: Path) -> str:
    if path.name == SERVER:
        return f"`fedadb deploy keys {path.parent} --renew` makes a new one, also while it runs"
    return (
        "make new keys at the server, in a new directory, with `fedadb deploy keys`, and give the "
        "new ca.crt to all sites"
    )


def _require_new(path: Path) -> None:
    if path.exists():
        raise BadInput(f"{path} exists: keys are never replaced; choose another directory")
