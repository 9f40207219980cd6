"""The sites that a server accepts: their public keys, and those that the SuperLink knows."""

from pathlib import Path

from pydantic import TypeAdapter

from fedadb.core.errors import BadInput
from fedadb.deploy import keys
from fedadb.storage.files import read_json

REGISTERED = "registered.json"  # the sites that the SuperLink's database knows


def public_keys(directory: Path) -> dict[str, str]:
    """The public keys of the sites that may take part, by name."""
    return {p.stem: p.read_text() for p in sorted((directory / keys.SITES).glob("*.pub"))}


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
    for name in (keys.SERVER_KEY, keys.SECRET):
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
