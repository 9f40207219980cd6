"""The commands `report` and `watch`. They import no torch."""

from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.terminal import show_error, show_message
from fedadb.core.errors import BadInput

RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Runs, or directories that contain runs.")
]


def report(
    directories: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="The report's directory; by default report/ in the first DIR."),
    ] = None,
) -> None:
    """Write tables, figures and a web page of finished and unfinished runs."""
    from fedadb.report.comparison import arrange
    from fedadb.report.output import write_report
    from fedadb.report.recorded_runs import collect_runs

    runs, warnings, errors = collect_runs(directories)
    for message in [*warnings, *errors]:
        show_error(message)
    out = out or directories[0] / "report"
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out}: is a file, and must be a directory")
    page = write_report(arrange(runs), _title(directories), out)
    show_message(f"Runs: {len(runs)}\nTables and figures: {out}\nPage: {page}")
    if errors:
        raise typer.Exit(1)


def watch(
    directories: RunsArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8265,
) -> None:
    """Serve the report's page on this machine, and update it while runs continue."""
    from fedadb.report.recorded_runs import find_runs
    from fedadb.report.watch import LiveData, serve_page

    find_runs(directories)  # raises at once if there are none
    with serve_page(LiveData(directories, _title(directories)), port) as server:
        host, chosen = server.server_address[:2]
        names = ", ".join(map(str, directories))
        show_message(f"http://{host!s}:{chosen}/ shows {names}; Ctrl-C stops the server")
        server.serve_forever()


def _title(directories: list[Path]) -> str:
    return ", ".join(directory.resolve().name for directory in directories)
