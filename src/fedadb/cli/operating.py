"""The commands of those who operate a real federation: check the audit logs, and the set-up."""

from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.terminal import show_message
from fedadb.core.errors import BadInput, Fault
from fedadb.storage.hash_chain import Chain, read_chain


def audit(
    log: Annotated[
        Path, typer.Argument(help="The directory of a server or a site, or its audit.jsonl.")
    ],
    head: Annotated[
        str | None,
        typer.Option(help="A hash that an earlier check showed. The log must still have it."),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=PATH of a site's log: each reply in the server's log must be there too. "
            "Can be given several times."
        ),
    ] = None,
) -> None:
    """Verify the audit log of a server or a site.

    Each line has the hash of the line before it, so that a line cannot be changed or removed
    without a trace. Keep the last hash somewhere else, and check with --head that no end was cut
    off.
    """
    from fedadb.deploy.audit import require_same_answers

    path, chain = _read_log(log)
    if head is not None and head not in {entry["hash"] for entry in chain.entries}:
        raise Fault(f"{path} does not have the entry {head}: its end was cut off or replaced")
    for pair in site or ():
        name, separator, other = pair.partition("=")
        if not separator:
            raise BadInput(f"--site {pair}: must be NAME=PATH")
        replies = require_same_answers(chain, _read_log(Path(other))[1], name)
        show_message(f"{replies} replies of {name} are in both logs")
    if chain.torn:
        show_message(
            f"The last line is not complete ({chain.torn} bytes): a process was killed while it "
            "wrote. The next entry will replace it."
        )
    if not chain.entries:
        show_message(f"{path} has no entries.")
        return
    first, last = chain.entries[0]["time"], chain.entries[-1]["time"]
    show_message(f"{path}: {len(chain.entries)} entries from {first} to {last}, unbroken.")
    show_message(f"The last hash is {chain.head}")


def _read_log(path: Path) -> tuple[Path, Chain]:
    """The log's file, and its entries after they were verified."""
    from fedadb.deploy.audit import AUDIT

    file = path / AUDIT if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{file} does not exist: a server or a site writes it when it starts")
    return file, read_chain(file)
