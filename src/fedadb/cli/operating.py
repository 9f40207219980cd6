"""The commands of those who operate a real federation: check the audit logs, and the set-up."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedadb.cli.deploy import require_flower
from fedadb.cli.terminal import experiment_table, show_message
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from fedadb.storage.hash_chain import Chain


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
    from fedadb.deploy.audit_log import compare_answers

    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise BadInput(f"--head {head}: must be the whole hash, 64 hexadecimal digits")
    path, chain = _read_log(log)
    if head is not None and head not in {entry["hash"] for entry in chain.entries}:
        raise Fault(f"{path} does not have the entry {head}: its end was cut off or replaced")
    for pair in site or ():
        name, separator, other = pair.partition("=")
        if not separator:
            raise BadInput(f"--site {pair}: must be NAME=PATH")
        both, site_only = compare_answers(chain, _read_log(Path(other))[1], name)
        show_message(f"{both} replies of {name} are in both logs.")
        if site_only:
            show_message(
                f"{name} sent {site_only} that the server's log does not have: they were late, or "
                "are under way, or were left out of the log."
            )
    if chain.torn:
        show_message(
            f"The last line is not complete ({chain.torn} bytes): a process writes it at the "
            "moment, or was killed while it did. Then the next entry will replace it."
        )
    if not chain.entries:
        show_message(f"{path} has no entries.")
        return
    first, last = chain.entries[0]["time"], chain.entries[-1]["time"]
    show_message(f"{path}: {len(chain.entries)} entries from {first} to {last}, unbroken.")
    show_message(f"The last hash is {chain.head}")


def doctor(
    directory: Annotated[Path, typer.Argument(help="The directory with the keys.")],
    experiment: Annotated[
        Path | None, typer.Argument(help="The experiment in TOML, to check the data as well.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="At a site: HOST:PORT of the server, to check the way to it.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="At a site: its data, folder:PATH, npz:PATH or csv:PATH.")
    ] = None,
    listen: Annotated[
        str, typer.Option(help="At the server: ADDRESS:PORT at which it accepts sites.")
    ] = "0.0.0.0:8443",
) -> None:
    """Check the set-up of a server or a site: versions, keys, certificates, clock, port and data.

    Each check is one line. The exit code is 1 if one of them failed.
    """
    require_flower()
    from fedadb.deploy import keys
    from fedadb.deploy.doctor import findings, server_checks, site_checks
    from fedadb.experiment.config import Experiment

    if not directory.is_dir():
        raise BadInput(f"{directory} is not a directory: `fedadb deploy keys` makes one")
    e = Experiment.read(experiment_table(experiment, None)) if experiment else None
    if (directory / keys.CA_KEY).exists() or (directory / keys.SERVER_KEY).exists():
        checks = server_checks(directory, e, listen)
    else:
        checks = site_checks(directory, e, server, data)
    failed = 0
    for what, sentence, ok in findings(checks):
        failed += not ok
        show_message(f"{'ok    ' if ok else 'FAILED'}  {what}: {sentence}")
    if failed:
        raise Fault(f"{failed} of {len(checks)} checks failed")


def _read_log(path: Path) -> "tuple[Path, Chain]":
    """The log's file, and its entries after they were verified."""
    from fedadb.deploy.audit_log import AUDIT
    from fedadb.storage.hash_chain import read_chain

    file = path / AUDIT if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{file} does not exist: a server or a site writes it when it starts")
    return file, read_chain(file)
