"""The command `analyse`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedadb.analysis import ANALYSES
from fedadb.cli.terminal import (
    CodeOption,
    allow_imports_from,
    console,
    show_error,
    show_message,
    show_progress,
)
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import ANALYSIS, EXPERIMENT

if TYPE_CHECKING:
    from fedadb.analysis.inputs import Options, Results
    from fedadb.experiment.stored import StoredRun

ANALYSE_HELP = """Analyse finished runs: forgetting, curvature, embeddings, privacy.

RUN is the directory of a run. Several runs are shown side by side, on one scale. NAME is an
analysis; without one, the command computes all that the runs allow. A word that is the directory
of a run is a run, even if an analysis has the same name. The analyses are:

""" + "\n".join(f"- {name}: {analysis.summary}" for name, analysis in ANALYSES.items())


def analyse(
    words: Annotated[
        list[str],
        typer.Argument(metavar="RUN... [NAME...]", help="Directories of runs, then analyses."),
    ],
    images: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of training images for hessian and landscape; by default 2000, or "
            "all if there are fewer.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The directory of the results; by default analysis/ in the first run."),
    ] = None,
    code: CodeOption = None,
) -> None:
    """Analyse finished runs and write figures and numbers."""
    from fedadb.analysis.inputs import Options, training_sample
    from fedadb.analysis.results import run_analyses
    from fedadb.experiment.stored import read_run

    directories, names = split_words(words)
    if code:
        allow_imports_from(code)
    runs = [read_run(directory, show_progress) for directory in directories]
    options = Options(images, show_progress)
    if images:
        for run in runs:
            if run.data:
                training_sample(run, images)  # too many are refused before anything is computed
    if not names:
        names = possible_analyses(runs, options)
    directory = out or directories[0] / ANALYSIS
    show_numbers(run_analyses(runs, names, directory, options, show_message))
    show_message(
        f"Figures and numbers: {directory}\n"
        f"`fedadb report {directories[0]}` writes a page that shows them"
    )


def split_words(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The words that are directories of runs, and those that are names of analyses."""
    directories, names = [], []
    for word in words:
        path = Path(word)
        if word in ANALYSES and not (path / EXPERIMENT).exists():
            names.append(word)
        elif path.is_dir():
            directories.append(path)
        else:
            from fedadb.experiment.validation import suggest

            raise BadInput(
                f"{word} is neither the directory of a run nor an analysis; "
                f"{suggest(word, ANALYSES)}"
            )
    if not directories:
        raise BadInput(f"analyse {' '.join(words)}: name the directory of a run, too")
    return directories, names


def possible_analyses(runs: "Sequence[StoredRun]", options: "Options") -> list[str]:
    """The analyses whose requirements the runs meet; shows why the others are skipped."""
    from fedadb.analysis.results import require

    names = []
    for name in ANALYSES:
        try:
            require(name, runs, options)
            names.append(name)
        except BadInput as error:
            show_error(f"{name} is skipped: {error}")
    return names


def show_numbers(results: "Mapping[str, Results]") -> None:
    """Print every single number of the results: one row per number, one column per run."""
    from rich import box
    from rich.table import Table

    titles = list(dict.fromkeys(title for by_run in results.values() for title in by_run))
    table = Table("", *titles, box=box.SIMPLE)
    for analysis, by_run in results.items():
        scalars = {title: _scalars(numbers) for title, numbers in by_run.items()}
        for name in dict.fromkeys(name for numbers in scalars.values() for name in numbers):
            values = [scalars.get(title, {}).get(name) for title in titles]
            cells = ["--" if value is None else f"{value:.4g}" for value in values]
            table.add_row(f"{analysis}: {name.replace('_', ' ')}", *cells)
    if table.row_count:
        console.print(table)


def _scalars(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The single numbers of nested tables, by the path to each; lists are left out."""
    scalars: dict[str, float] = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            scalars |= _scalars(value, f"{prefix}{key} ")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            scalars[prefix + key] = float(value)
    return scalars
