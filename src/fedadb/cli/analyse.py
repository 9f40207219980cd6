"""The command that looks into finished runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedadb.analysis import NAMES
from fedadb.cli.terminal import complain, out, tell, show_progress
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import ANALYSIS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedadb.analysis.subject import Subject


def analyse(
    words: Annotated[
        list[str],
        typer.Argument(metavar="RUN... [NAME...]"),
    ],
    images: Annotated[
        int | None,
        typer.Option(
            min=1, help="Training images for the curvature and the landscape, by default 2000."
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--out", help="By default analysis/ in the first run.")
    ] = None,
) -> None:
    """See what models kept, how flat they sit and what anchors tell: figures and numbers.

    NAME is any of heatmap, forgetting, hessian, landscape, tsne, pca, psnr and membership; without
    one it is all that the runs allow. Several runs are shown side by side, on one scale.
    """
    from fedadb.analysis.subject import load
    from fedadb.analysis.write import analyse as write

    places = [Path(word) for word in words if word not in NAMES]
    names = [word for word in words if word in NAMES]
    if not places:
        raise BadInput(f"analyse {' '.join(words)}: name a run's directory as well")
    for place in places:
        if not place.is_dir():
            raise BadInput(f"{place} is no directory of a run and no analysis ({', '.join(NAMES)})")
    subjects = [load(place, images, show_progress) for place in places]
    if not names:
        names = possible(subjects)
    place = directory or places[0] / ANALYSIS
    found = write(subjects, names, place, tell)
    show_numbers(found)
    tell(f"Figures and numbers: {place}; `fedadb report {places[0]}` has them on its page")


def possible(subjects: "Sequence[Subject]") -> list[str]:
    """The analyses for which these runs have what is needed; why others are left out is told."""
    from fedadb.analysis.write import require

    names = []
    for name in NAMES:
        try:
            require(name, subjects)
            names.append(name)
        except BadInput as error:
            complain(f"{name} is left out: {error}")
    return names


def show_numbers(found: "dict[str, dict[str, dict[str, object]]]") -> None:
    """The numbers that stand for themselves, a row each."""
    from rich import box
    from rich.table import Table

    runs = list(dict.fromkeys(run for of in found.values() for run in of))
    table = Table("", *runs, box=box.SIMPLE)
    for analysis, of in found.items():
        keys = dict.fromkeys(key for numbers in of.values() for key in _numbers(numbers))
        for key in keys:
            values = [_numbers(of.get(run, {})).get(key) for run in runs]
            told = ["--" if v is None else f"{v:.4g}" for v in values]
            table.add_row(f"{analysis}: {key.replace('_', ' ')}", *told)
    if table.row_count:
        out.print(table)


def _numbers(numbers: "dict[str, object]", path: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in numbers.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{path}{key} ")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[path + key] = float(value)
    return found
