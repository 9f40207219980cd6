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
from fedadb.core.files import write_whole
from fedadb.experiment.run import one_thread
from fedadb.report.figures import save


class Analysis(NamedTuple):
    measure: Callable[[Subject], Numbers]
    draw: Callable[[figures.Found, Sequence[str]], Figure]
    anchors: int = 0  # of how many rounds it needs them


ANALYSES = {
    "heatmap": Analysis(measures.heatmap, figures.heatmap),
    "forgetting": Analysis(measures.forgetting, figures.forgetting),
    "hessian": Analysis(measures.hessian, figures.hessian),
    "landscape": Analysis(measures.landscape, figures.landscape),
    "tsne": Analysis(measures.tsne, figures.tsne, anchors=2),
    "pca": Analysis(measures.pca, figures.pca, anchors=2),
    "psnr": Analysis(measures.psnr, figures.psnr, anchors=1),
    "membership": Analysis(measures.membership, figures.membership, anchors=1),
}


def analyse(
    subjects: Sequence[Subject], names: Sequence[str], out: Path
) -> dict[str, dict[str, Numbers]]:
    """What the analyses find, by analysis and run; `out` has it as files.

    Runs of methods without anchors are left out where anchors are needed, unless there is no other.
    """
    if len({subject.world.classes for subject in subjects}) > 1:
        raise BadInput("these runs have different classes: analyse them apart")
    titles = _titles(subjects)
    with_anchors = [s for s in subjects if s.has_anchors] or subjects
    for name in names:  # what cannot be done is told before anything is computed
        for subject in with_anchors if ANALYSES[name].anchors else ():
            _ = subject.early_and_late() if ANALYSES[name].anchors == 2 else subject.sent
    out.mkdir(parents=True, exist_ok=True)
    everything: dict[str, dict[str, Numbers]] = {}
    for name in names:
        analysis, found = ANALYSES[name], {}
        for subject in with_anchors if analysis.anchors else subjects:
            with one_thread():
                found[titles[subject.directory]] = analysis.measure(subject)
        everything[name] = found
        save(analysis.draw(found, subjects[0].world.classes), out / name)
        plain = {run: _plain(numbers) for run, numbers in found.items()}
        write_whole(out / f"{name}.json", json.dumps(plain, indent=1).encode())
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
