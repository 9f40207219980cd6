"""The commands about data: `fedadb data list|fetch|check` and `fedadb partition`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from fedadb.cli.completion import complete_dataset
from fedadb.cli.terminal import (
    ExperimentArgument,
    SettingsOption,
    checked_table,
    console,
    show_error,
    show_message,
    show_progress,
)
from fedadb.core.errors import BadInput, Fault
from fedadb.interruption import exit_code

if TYPE_CHECKING:
    from fedadb.datasets.source import Source

data = typer.Typer(help="List, download and verify datasets.", no_args_is_help=True)

DatasetArgument = Annotated[
    str,
    typer.Argument(help="A name from `fedadb data list`.", autocompletion=complete_dataset),
]


@data.command("list")
def list_() -> None:
    """List the datasets, and which of them are on this machine."""
    from fedadb.datasets import DATASETS
    from fedadb.datasets.source import data_directory

    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for header in ("name", "classes", "shape", "train", "test", "MB", "licence", "installed"):
        number = header in ("classes", "train", "test", "MB")
        table.add_column(
            header, justify="right" if number else "left", no_wrap=header != "installed"
        )
    for name, source in DATASETS.items():
        table.add_row(
            name,
            str(source.classes),
            "×".join(map(str, source.shape)),
            *map(str, source.rows),
            f"{source.size / 1e6:.0f}",
            source.licence,
            _installed(source),
        )
    console.print(table)
    show_message(
        "Your own data: csv:PATH (a table), npz:PATH (arrays) or folder:PATH (images, one "
        "subfolder per class).\n"
        f"Data directory: {data_directory()} (set FEDADB_DATA to change it)"
    )


@data.command()
def fetch(name: DatasetArgument) -> None:
    """Download a dataset from its publisher and verify it. An interrupted download resumes.

    NAME is a dataset from `fedadb data list`.
    """
    from fedadb.datasets.fetch import fetch_dataset

    source = _source(name)
    if source.present():
        try:
            source.load(name, show_progress)
        except BadInput:
            show_message(f"{name} is damaged; downloading it again.")
        else:
            show_message(
                f"{name} is already on this machine; `fedadb data check {name}` verifies it."
            )
            return
    show_message(f"{name}: licence {source.licence}")
    try:
        location = fetch_dataset(source, show_progress)
    except KeyboardInterrupt as error:
        show_error(f"stopped; `fedadb data fetch {name}` resumes the download")
        raise typer.Exit(exit_code(error)) from None
    show_message(f"{name}: {location}")


@data.command()
def check(name: DatasetArgument) -> None:
    """Verify a dataset on disk: checksums, rows, classes and image shapes.

    NAME is a dataset from `fedadb data list`.
    """
    from fedadb.datasets.verify import verify

    source = _source(name)
    if not source.present():
        raise BadInput(f"{name} is not on this machine; download it: `fedadb data fetch {name}`")
    table = Table("", "expected", "actual", "", box=box.SIMPLE)
    findings = verify(name, source, show_progress)
    for what, expected, actual, equal in findings:
        table.add_row(what, expected, actual, {True: "ok", False: "WRONG", None: ""}[equal])
    console.print(table)
    wrong = [finding.what for finding in findings if finding.equal is False]
    if wrong:
        raise Fault(
            f"{name} is not as published: {', '.join(wrong)}; "
            f"delete {source.location} and run `fedadb data fetch {name}`"
        )
    if all(finding.equal is not None for finding in findings):
        show_message(f"{name} in {source.location} is as published.")
    else:
        show_message(
            f"{name} in {source.location} has the published rows, classes and image shapes; "
            "there is no checksum to compare with."
        )


def partition(
    experiment: ExperimentArgument = None,
    settings: SettingsOption = None,
    out: Annotated[Path, typer.Option(help="The file of the figure: .png, .pdf or .svg.")] = Path(
        "partition.png"
    ),
) -> None:
    """Show which client holds how many rows of which class, as tables and a figure.

    EXPERIMENT is a TOML file; without it, the default experiment on digits. Nothing is trained.
    """
    if out.suffix.lower() not in {".png", ".pdf", ".svg"}:
        raise BadInput(f"--out {str(out)!r}: must end in .png, .pdf or .svg")
    table = checked_table(experiment, settings)
    from fedadb import datasets
    from fedadb.cli.display import partition_tables
    from fedadb.experiment import build
    from fedadb.experiment.config import Experiment
    from fedadb.partition.protocol import class_counts
    from fedadb.report.plots import draw_partition

    e = Experiment.read(table)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.touch()
    except OSError as error:
        raise BadInput(f"--out {str(out)!r} cannot be written: {error.strerror}") from error
    splits = datasets.load(e.dataset, show_progress)
    counts = class_counts(splits.train.y.numpy(), build.partition(e, splits), len(splits.classes))
    for summary in partition_tables(counts, splits.classes):
        console.print(summary)
    draw_partition(counts, splits.classes, str(e.dataset).rpartition("/")[2], out)
    show_message(f"Figure: {out}")


def _installed(source: "Source") -> str:
    """Whether the dataset is on this machine, and where it came from."""
    from fedadb.datasets.verify import read_origin

    if not source.downloads:
        return "always"
    if not source.present():
        return "no"
    origin = read_origin(source)
    return origin.urls[0].split("/")[2] if origin else "by hand"


def _source(name: str) -> "Source":
    from fedadb.datasets import DATASETS
    from fedadb.experiment.validation import suggest

    if name not in DATASETS:
        raise BadInput(f"{name!r} is not a dataset; {suggest(name, DATASETS)}")
    source = DATASETS[name]
    if not source.downloads:
        raise BadInput(f"{name} is included in scikit-learn: there is nothing to fetch or check")
    return source
