"""Analyses of runs, written down: numbers as JSON, pictures as PNG and PDF."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from fedadb.analysis import figures, measures
from fedadb.analysis.measures import Numbers
from fedadb.analysis.subject import Subject
from fedadb.core.errors import BadInput
from fedadb.storage.files import write_atomically
from fedadb.experiment.run import one_thread
from fedadb.report.figures import save


class Analysis(NamedTuple):
    measure: Callable[[Subject], Numbers]
    draw: Callable[[figures.Found, Sequence[str]], Figure]
    needs: Callable[[Subject], object]  # raises what it lacks
    anchors: bool = False  # whether it is of anchors
    images: bool = True  # whether it looks at the data


ANALYSES = {
    "heatmap": Analysis(measures.heatmap, figures.heatmap, lambda s: s.rounds, images=False),
    "forgetting": Analysis(
        measures.forgetting, figures.forgetting, lambda s: s.rounds, images=False
    ),
    "hessian": Analysis(measures.hessian, figures.hessian, lambda s: s.w),
    "landscape": Analysis(measures.landscape, figures.landscape, lambda s: s.w),
    "tsne": Analysis(measures.tsne, figures.tsne, Subject.early_and_late, anchors=True),
    "pca": Analysis(measures.pca, figures.pca, Subject.early_and_late, anchors=True),
    "psnr": Analysis(measures.psnr, figures.psnr, lambda s: s.sent, anchors=True),
    "membership": Analysis(
        measures.membership, figures.membership, lambda s: (s.sent, s.w, s.rounds), anchors=True
    ),
}


def require(name: str, subjects: Sequence[Subject]) -> None:
    """That the runs have what the analysis needs."""
    for subject in of(name, subjects):
        ANALYSES[name].needs(subject)
        if ANALYSES[name].images:
            subject.require_images()


def of(name: str, subjects: Sequence[Subject]) -> Sequence[Subject]:
    """The runs that it is of: where anchors are needed, those that have them, if any has."""
    with_anchors = [subject for subject in subjects if subject.has_anchors]
    return with_anchors if ANALYSES[name].anchors and with_anchors else subjects


def analyse(
    subjects: Sequence[Subject],
    names: Sequence[str],
    out: Path,
    tell: Callable[[str], None] = lambda step: None,
) -> dict[str, dict[str, Numbers]]:
    """What the analyses find, by analysis and run; `out` has it as files."""
    if len({subject.world.classes for subject in subjects}) > 1:
        raise BadInput("these runs have different classes: analyse them apart")
    titles = _titles(subjects)
    for name in names:  # what cannot be done is told before anything is computed
        require(name, subjects)
    out.mkdir(parents=True, exist_ok=True)
    everything: dict[str, dict[str, Numbers]] = {}
    for name in names:
        analysis, found = ANALYSES[name], {}
        for subject in of(name, subjects):
            tell(f"{name} of {titles[subject.directory]}")
            with one_thread():
                found[titles[subject.directory]] = analysis.measure(subject)
        everything[name] = found
        save(analysis.draw(found, subjects[0].world.classes), out / name)
        plain = {run: _plain(numbers) for run, numbers in found.items()}
        write_atomically(out / f"{name}.json", json.dumps(plain, indent=1).encode())
    return everything


def _titles(subjects: Sequence[Subject]) -> dict[Path, str]:
    """Method and seed; where that is not enough, the run's directory as well."""
    short = {
        s.directory: f"{type(s.experiment.algorithm).__name__}, seed {s.experiment.seed}"
        for s in subjects
    }
    names = list(short.values())
    return {
        directory: name if names.count(name) == 1 else f"{name}, {directory.name}"
        for directory, name in short.items()
    }


def _plain(numbers: Numbers) -> dict[str, Any]:
    """What JSON can hold; pictures and vectors are too large for it."""
    left_out = ("vectors", "pictures")
    return {key: _finite(value) for key, value in numbers.items() if key not in left_out}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value
