"""The commands that show what runs recorded. They import no torch."""

from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.terminal import complain, tell
from fedadb.core.errors import BadInput

PLACES = Annotated[list[Path], typer.Argument(help="Runs, or directories that hold runs.")]


def report(
    places: PLACES,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where it goes; by default report/ in the first directory."),
    ] = None,
) -> None:
    """Make tables, figures and a page of runs."""
    from fedadb.report.groups import arrange
    from fedadb.report.runs import read_all
    from fedadb.report.write import write_report

    runs, notes, damaged = read_all(places)
    for note in [*notes, *damaged]:
        complain(note)
    out = directory or places[0] / "report"
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out}: is a file, and must be a directory")
    page = write_report(arrange(runs), _title(places), out)
    tell(f"Runs: {len(runs)}\nTables and figures: {out}\nPage: {page}")
    if damaged:
        raise typer.Exit(1)


def watch(
    places: PLACES,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8265,
) -> None:
    """Serve the page on loopback, and keep it up to date as rounds are done."""
    from fedadb.report.runs import find
    from fedadb.report.watch import Watched, serve

    find(places)  # a directory without runs is told at once
    with serve(Watched(places, _title(places)), port) as server:
        host, chosen = server.server_address[:2]
        tell(f"http://{host!s}:{chosen}/ follows {', '.join(map(str, places))}; Ctrl-C ends it")
        server.serve_forever()


def _title(places: list[Path]) -> str:
    return ", ".join(place.resolve().name for place in places)
