"""The sites that a server accepts: their public keys, and those that the SuperLink knows.

An administrator adds and removes keys in `sites/`. The server copies each key that it has
registered to `accepted/`, and deletes it there when it is gone from `sites/`. The proxy and the
executor accept the sites in `accepted/` and read it again and again, so that neither restarts.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedadb.core.errors import BadInput
from fedadb.deploy import keys
from fedadb.storage.files import read_json, write_atomically

REGISTERED = "registered.json"  # the sites that the SuperLink's database knows
CONNECTED = "connected"  # file: how many of them are connected
ACCEPTED = "accepted"  # directory with NAME.pub for each site that is accepted at the moment


def public_keys(directory: Path, folder: str = keys.SITES) -> dict[str, str]:
    """The public keys of the sites that may take part, by name."""
    found = {}
    for path in sorted((directory / folder).glob("*.pub")):
        if path.is_file():  # it may have been removed in the meantime
            found[path.stem] = path.read_text()
    return found


def update_accepted(
    directory: Path,
    register: Callable[[str, Path], None],
    audit: Callable[..., Any],
) -> list[str]:
    """Accept the sites whose keys are new in `sites/`, and no longer those whose keys are gone.

    Returns a sentence for each change, and for each key that cannot be used.

    Args:
        directory: The server's.
        register: Tells the SuperLink a site's name and the file of its key.
        audit: Writes an event to the audit log.
    """
    wanted, sentences = _usable_keys(directory)
    accepted, known = public_keys(directory, ACCEPTED), registered_keys(directory)
    for name, key in accepted.items():
        if wanted.get(name) != key:
            (directory / ACCEPTED / f"{name}.pub").unlink()
            audit("revoked", site=name, key=keys.fingerprint(key))
            sentences.append(f"{name} is no longer accepted")
    for name, key in wanted.items():
        if accepted.get(name) == key:
            continue
        if known.get(name) != key:
            register(name, directory / keys.SITES / f"{name}.pub")
            known[name] = key
            write_atomically(directory / REGISTERED, json.dumps(known).encode())
        (directory / ACCEPTED).mkdir(exist_ok=True, mode=0o700)
        write_atomically(directory / ACCEPTED / f"{name}.pub", key.encode())
        audit("accepted", site=name, key=keys.fingerprint(key))
        sentences.append(f"{name} is accepted")
    return sentences


def accept_nobody(directory: Path) -> None:
    """Forget which sites an earlier server accepted: the SuperLink may not know them any more."""
    shutil.rmtree(directory / ACCEPTED, ignore_errors=True)
    (directory / CONNECTED).unlink(missing_ok=True)


def _usable_keys(directory: Path) -> tuple[dict[str, str], list[str]]:
    """The keys that can be used, and a sentence for each other one."""
    usable: dict[str, str] = {}
    sentences = []
    for name, key in public_keys(directory).items():
        try:
            keys.require_public(directory / keys.SITES / f"{name}.pub")
            if key in usable.values():
                raise BadInput(f"{name} has the key of another site: each site makes its own")
            usable[name] = key
        except (BadInput, FileNotFoundError) as error:
            sentences.append(str(error))
    return usable, sentences


def registered_keys(directory: Path) -> dict[str, str]:
    """The public keys that the SuperLink's database has, by name."""
    path = directory / REGISTERED
    return read_json(path, TypeAdapter(dict[str, str])) if path.exists() else {}


def forget_removed_sites(directory: Path) -> None:
    """Delete the SuperLink's database if a site's key was removed or replaced.

    The SuperLink would accept the old key for ever. The database holds nothing else that is needed
    again: runs have their own directories.
    """
    allowed = public_keys(directory)
    if any(allowed.get(name) != key for name, key in registered_keys(directory).items()):
        for path in directory.glob("superlink.db*"):
            path.unlink()
        (directory / REGISTERED).unlink()


def require_keys(directory: Path) -> None:
    """Raise BadInput unless the directory holds the server's keys and those of its sites."""
    for name, what in ((keys.CA, "the authority's certificate"), (keys.SERVER, "the server's")):
        keys.require_valid(directory / name, what)
    for name in (keys.SERVER_KEY, keys.SUPERLINK, keys.SUPERLINK_KEY, keys.SECRET):
        if not (directory / name).is_file():
            raise BadInput(f"{directory / name} is missing: `fedadb deploy keys` makes it")
    public = public_keys(directory)
    for name, key in public.items():
        keys.require_public(directory / keys.SITES / f"{name}.pub")
        if list(public.values()).count(key) > 1:
            raise BadInput(f"{name} has the key of another site: each site makes its own")
    if not public:
        raise BadInput(
            f"{directory / keys.SITES} has no site's public key: put each site's site.pub there as "
            "NAME.pub"
        )
