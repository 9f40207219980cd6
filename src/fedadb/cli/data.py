"""The commands about data: which there are, getting and checking them, and who holds what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from fedadb.cli.terminal import FILE, SETTINGS, complain, given, out, tell, show_progress
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from fedadb.datasets.source import Source

data = typer.Typer(help="The datasets: which there are, and getting them.", no_args_is_help=True)

NAME = Annotated[str, typer.Argument(help="A dataset of `fedadb data list`.")]


@data.command("list")
def list_() -> None:
    """Show the datasets, and which of them are on this machine."""
    from fedadb.datasets import SOURCES
    from fedadb.datasets.source import directory
    from fedadb.datasets.verify import origin

    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for header in ("name", "classes", "shape", "train", "test", "MB", "licence", "here"):
        right = header in ("classes", "train", "test", "MB")
        table.add_column(header, justify="right" if right else "left", no_wrap=header != "here")
    table.add_row("digits", "10", "1×28×28", "1438", "359", "0", "BSD", "always")
    for name, source in SOURCES.items():
        known = origin(source)
        here = known.urls[0].split("/")[2] if known else "by hand"
        table.add_row(
            name,
            str(source.classes),
            "×".join(map(str, source.shape)),
            *map(str, source.rows),
            f"{source.size / 1e6:.0f}",
            source.licence,
            here if source.here() else "no",
        )
    out.print(table)
    tell(
        "Your own: npz:PATH (arrays) and folder:PATH (images, one subfolder per class).\n"
        f"Data directory: {directory()} (set FEDADB_DATA to change it)"
    )


@data.command()
def fetch(name: NAME) -> None:
    """Download a dataset from its publisher, and verify it. An interrupted fetch goes on."""
    from fedadb.datasets.fetch import fetch as bring

    source = _source(name)
    if source.here():
        try:
            source.load(name, show_progress)
        except BadInput:
            tell(f"{name} is here, but damaged: it is fetched anew.")
        else:
            tell(f"{name} is here already; `fedadb data check {name}` tells whether it is whole.")
            return
    tell(f"{name}: licence {source.licence}")
    try:
        place = bring(source, show_progress)
    except KeyboardInterrupt:
        complain(f"stopped; `fedadb data fetch {name}` goes on from what has come")
        raise typer.Exit(130) from None
    tell(f"{name}: {place}")


@data.command()
def check(name: NAME) -> None:
    """Verify a dataset on disk: checksums, rows, classes and shapes."""
    from fedadb.datasets.verify import verify

    source = _source(name)
    if not source.here():
        raise BadInput(f"{name} is not here: `fedadb data fetch {name}` brings it")
    table = Table("", "should be", "is", "", box=box.SIMPLE)
    findings = verify(name, source, show_progress)
    for what, expected, found, right in findings:
        table.add_row(what, expected, found, {True: "ok", False: "WRONG", None: ""}[right])
    out.print(table)
    wrong = [finding.what for finding in findings if finding.right is False]
    if wrong:
        raise Fault(
            f"{name} is not as published: {', '.join(wrong)}; delete {source.place} and fetch it"
        )
    compared = all(finding.right is not None for finding in findings)
    unsure = "" if compared else ", as far as can be told without a checksum"
    tell(f"Nothing is wrong with {name} in {source.place}{unsure}.")


def partition(
    experiment: FILE = None,
    settings: SETTINGS = None,
    picture: Annotated[Path, typer.Option("--out", help="Where the picture goes.")] = Path(
        "partition.png"
    ),
) -> None:
    """Show who holds what: rows and classes of the clients, and a picture of it.

    EXPERIMENT is a file in TOML; without one, it is digits. Nothing is trained.
    """
    from fedadb import datasets
    from fedadb.experiment import build
    from fedadb.experiment.config import Experiment
    from fedadb.cli.display import holdings
    from fedadb.report.partition import draw_partition

    if picture.suffix.lower() not in {".png", ".pdf", ".svg"}:
        raise BadInput(f"--out {str(picture)!r}: must end in .png, .pdf or .svg")
    e = Experiment.read(given(experiment, settings))
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.touch()
    except OSError as error:
        raise BadInput(f"--out {str(picture)!r} cannot be written: {error.strerror}") from error
    splits = datasets.load(e.dataset, show_progress)
    counts = build.held(splits, build.partition(e, splits))
    for table in holdings(counts, splits.classes):
        out.print(table)
    draw_partition(counts, splits.classes, e.dataset.rpartition("/")[2], picture)
    tell(f"Picture: {picture}")


def _source(name: str) -> "Source":
    from fedadb.datasets import SOURCES
    from fedadb.experiment.validation import suggest

    if name == "digits":
        raise BadInput("digits comes with scikit-learn: there is nothing to fetch or to check")
    if name not in SOURCES:
        raise BadInput(f"{name!r} is not a dataset to fetch; {suggest(name, SOURCES)}")
    return SOURCES[name]
