"""Runs analyses and writes their results: numbers as JSON, figures as PNG and PDF."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from matplotlib.figure import Figure

from fedadb.analysis import ANALYSES
from fedadb.analysis.anchors import generates_anchors
from fedadb.analysis.inputs import Numbers, Options, Results
from fedadb.core.errors import BadInput
from fedadb.engine.process import one_thread
from fedadb.experiment.stored import StoredRun
from fedadb.report.drawing import literal, save_figure
from fedadb.storage.files import write_atomically

NOT_IN_JSON = ("vectors", "pictures")  # too large


class AnalysisModule(Protocol):
    """The functions of an analysis's module."""

    def require(self, run: StoredRun, options: Options) -> None:
        """Raise BadInput if the run lacks what the analysis needs."""
        ...

    def measure(self, run: StoredRun, options: Options) -> Numbers: ...

    def draw(self, results: Results, classes: Sequence[str]) -> Figure:
        """Draw the results of several runs on one scale."""
        ...


def module_of(name: str) -> AnalysisModule:
    return cast(AnalysisModule, import_module(f"fedadb.analysis.{name}"))


def require(name: str, runs: Sequence[StoredRun], options: Options) -> None:
    """Raise BadInput if one of the runs lacks what the analysis needs."""
    for run in applicable(name, runs):
        module_of(name).require(run, options)


def applicable(name: str, runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    """The runs that the analysis is about.

    For an analysis of anchors, these are the runs that generate anchors. If none does, they are
    all runs, so that `require` can say what they lack.
    """
    with_anchors = [run for run in runs if generates_anchors(run)]
    return with_anchors if ANALYSES[name].of_anchors and with_anchors else runs


def run_analyses(
    runs: Sequence[StoredRun],
    names: Sequence[str],
    out: Path,
    options: Options,
    log: Callable[[str], None] = lambda message: None,
) -> dict[str, Results]:
    """Analyse runs, side by side.

    Args:
        runs: Runs on data with the same classes.
        names: Analyses of `ANALYSES`. All requirements are checked before anything is computed.
        out: The directory to write to.
        options: The user's choices.
        log: Called with a message before each analysis of each run.

    Returns:
        The results by the analyses' names.
    """
    if len({run.spec.classes for run in runs}) > 1:
        raise BadInput("these runs have different classes; analyse them separately")
    for name in names:
        require(name, runs, options)
    titles, classes = titles_of(runs), [literal(name) for name in runs[0].spec.classes]
    out.mkdir(parents=True, exist_ok=True)
    everything: dict[str, Results] = {}
    for name in names:
        module, results = module_of(name), {}
        for run in applicable(name, runs):
            title = titles[run.directory]
            log(f"{name} of {title}")
            with one_thread():
                results[title] = module.measure(run, options)
        everything[name] = results
        save_figure(module.draw(results, classes), out / name)
        write_atomically(out / f"{name}.json", _to_json(results))
    return everything


def titles_of(runs: Sequence[StoredRun]) -> dict[Path, str]:
    """Algorithm and seed of each run; if several have the same, with the directory's name."""
    short = {
        run.directory: f"{run.experiment.algorithm.name}, seed {run.experiment.seed}"
        for run in runs
    }
    titles = list(short.values())
    return {
        directory: title if titles.count(title) == 1 else f"{title}, {directory.name}"
        for directory, title in short.items()
    }


def _to_json(results: Results) -> bytes:
    kept = {
        title: {key: value for key, value in numbers.items() if key not in NOT_IN_JSON}
        for title, numbers in results.items()
    }
    return json.dumps(_finite(kept), indent=1).encode()


def _finite(value: Any) -> Any:
    """JSON has no nan and no infinity: both become null."""
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value
