"""Analyses of runs, written down: numbers as JSON, pictures as PNG and PDF."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedadb.analysis.figures import FIGURES
from fedadb.analysis.measures import ANALYSES, Numbers
from fedadb.analysis.subject import Subject
from fedadb.core.errors import BadInput
from fedadb.core.files import write_whole
from fedadb.core.track import Track, unseen
from fedadb.experiment.run import one_thread

WITH_ANCHORS = ("tsne", "pca", "psnr", "membership")


def analyse(
    subjects: Sequence[Subject],
    names: Sequence[str],
    out: Path,
    images: int | None = None,
    track: Track = unseen,
) -> dict[str, dict[str, Numbers]]:
    """What the analyses find, by analysis and run; `out` has it as files.

    Runs of methods without anchors are left out where anchors are needed, unless there is no other.
    """
    titles = _titles(subjects)
    for name in names:  # what cannot be done is told before anything is computed
        for subject in subjects:
            if name in WITH_ANCHORS and (subject.has_anchors or len(subjects) == 1):
                _ = subject.early_and_late() if name in ("tsne", "pca") else subject.sent
    if len({subject.world.classes for subject in subjects}) > 1:
        raise BadInput("these runs have different classes: analyse them apart")
    out.mkdir(parents=True, exist_ok=True)
    everything: dict[str, dict[str, Numbers]] = {}
    tops: dict[Path, Numbers] = {}
    for name in names:
        found: dict[str, Numbers] = {}
        for subject in subjects:
            if name in WITH_ANCHORS and len(subjects) > 1 and not subject.has_anchors:
                continue
            with one_thread():
                if name in ("hessian", "landscape") and subject.directory not in tops:
                    tops[subject.directory] = ANALYSES["hessian"](subject, images, track)
                if name == "hessian":
                    found[titles[subject.directory]] = tops[subject.directory]
                elif name == "landscape":
                    top = tops[subject.directory]
                    found[titles[subject.directory]] = ANALYSES[name](subject, images, track, top)
                else:
                    found[titles[subject.directory]] = ANALYSES[name](subject, images, track)
        if not found:
            raise BadInput(f"{name}: none of these runs has anchors; FedADB's have")
        everything[name] = found
        figure = FIGURES[name](found, subjects[0].world.classes)
        for ending in ("png", "pdf"):
            picture = io.BytesIO()
            figure.savefig(picture, format=ending, dpi=150)
            write_whole(out / f"{name}.{ending}", picture.getvalue())
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
