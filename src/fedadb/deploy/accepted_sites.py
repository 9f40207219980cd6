"""The sites that a server accepts: their public keys, and those that the SuperLink knows.

An administrator adds and removes keys in `sites/`. The server copies each key that it has
registered to `accepted/`, and deletes it there when it is gone from `sites/`. The proxy and the
executor accept the sites in `accepted/` and read it again and again, so that neither restarts.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys
from fedadb.deploy.site_keys import fingerprint, public_line, read_public_key
from fedadb.storage.files import read_json, write_atomically

DATABASE = "superlink.db"  # of the SuperLink
REGISTERED = "registered.json"  # the sites that the SuperLink's database knows
CONNECTED = "connected"  # file: how many of them are connected
ACCEPTED = "accepted"  # directory with NAME.pub for each site that is accepted at the moment


def site_names(directory: Path) -> list[str]:
    """The names of the sites whose keys the operator has put into `sites/`."""
    return [path.stem for path in _key_files(directory)]


def accepted_keys(directory: Path) -> dict[str, str]:
    """The public keys of the sites that are accepted at the moment, by name."""
    found = {}
    for path in sorted((directory / ACCEPTED).glob("*.pub")):
        with suppress(FileNotFoundError):  # it may have been revoked in the meantime
            found[path.stem] = path.read_text()
    return found


def registered_keys(directory: Path) -> dict[str, str]:
    """The public keys that the SuperLink's database has, by name; also those of removed sites."""
    path = directory / REGISTERED
    return read_json(path, TypeAdapter(dict[str, str])) if path.exists() else {}


def update_accepted(
    directory: Path,
    register: Callable[[str, str], None],
    audit: Callable[..., Any],
) -> list[str]:
    """Accept the sites whose keys are new in `sites/`, and no longer those whose keys are gone.

    Returns a sentence for each change, and for each key that cannot be used.

    Args:
        directory: The server's.
        register: Tells the SuperLink a site's name and its public key; a Fault if that fails.
        audit: Writes an event to the audit log.
    """
    wanted, sentences = _usable_keys(directory)
    accepted, known = accepted_keys(directory), registered_keys(directory)
    for name, key in accepted.items():
        if wanted.get(name) != key:
            (directory / ACCEPTED / f"{name}.pub").unlink()
            audit("revoked", site=name, key=fingerprint(key))
            sentences.append(f"{name} is no longer accepted")
    for name, key in wanted.items():
        if accepted.get(name) == key:
            continue
        if known.get(name) != key:
            try:
                register(name, key)
            except Fault as error:  # the run continues, and the next look tries again
                sentences.append(f"{name} cannot be accepted yet: {error}")
                continue
            known[name] = key
            write_atomically(directory / REGISTERED, json.dumps(known).encode())
        (directory / ACCEPTED).mkdir(exist_ok=True, mode=0o700)
        write_atomically(directory / ACCEPTED / f"{name}.pub", key.encode())
        audit("accepted", site=name, key=fingerprint(key))
        sentences.append(f"{name} is accepted")
    return sentences


def accept_nobody(directory: Path) -> None:
    """Forget which sites an earlier server accepted: their keys may be gone from `sites/`.

    The SuperLink's database is kept. It knows removed sites too, but their requests do not reach
    it; and sites that are connected would be strangers to a new one.
    """
    if not (directory / DATABASE).exists():  # somebody deleted it, and a new one knows no site
        (directory / REGISTERED).unlink(missing_ok=True)
    shutil.rmtree(directory / ACCEPTED, ignore_errors=True)
    (directory / CONNECTED).unlink(missing_ok=True)


def require_keys(directory: Path) -> None:
    """Raise BadInput unless the directory holds the server's keys and those of its sites."""
    keys.require_server_keys(directory)
    usable, sentences = _usable_keys(directory)
    if sentences:
        raise BadInput(sentences[0])
    if not usable:
        raise BadInput(
            f"{directory / keys.SITES} has no site's public key: put each site's site.pub there as "
            "NAME.pub"
        )


def _key_files(directory: Path) -> list[Path]:
    """The files of public keys in `sites/`, without those that copying programs hide there."""
    found = sorted((directory / keys.SITES).glob("*.pub"))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def _usable_keys(directory: Path) -> tuple[dict[str, str], list[str]]:
    """The keys that can be used, and a sentence for each other one."""
    usable: dict[str, str] = {}
    sentences = []
    for path in _key_files(directory):
        try:
            if not path.stem.isprintable():
                raise BadInput(f"{str(path)!r}: the name of a site must be printable; rename it")
            key = public_line(read_public_key(path))
            if key in usable.values():
                raise BadInput(f"{path.stem} has the key of another site: each site makes its own")
            usable[path.stem] = key
        except BadInput as error:
            sentences.append(str(error))
    return usable, sentences
