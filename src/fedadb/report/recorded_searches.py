"""Searches for settings beside recorded runs: which of the runs are results, which only trials."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedadb.experiment.settings import affecting
from fedadb.experiment.toml_tables import flatten, up_to_date
from fedadb.report.recorded_runs import RecordedRun
from fedadb.storage.searches import Search, read_searches


class SeparatedRuns(NamedTuple):
    results: list[RecordedRun]
    trials: list[RecordedRun]  # whose settings were tried and not chosen
    searches: list[Search]  # of the methods and experiments that these runs have


def separate_trials(runs: Sequence[RecordedRun]) -> SeparatedRuns:
    """Read the searches beside the runs, and set apart the trials that were not chosen.

    A trial stays a result if its settings are not only a trial's, that is, if an ordinary run has
    them too, or if the better trial is not among the runs. If only trials of unfinished searches
    are there, all of them are results: there is nothing else to show.
    """
    parents = dict.fromkeys(_path(run).parent for run in runs)
    found = {file: s for parent in parents for file, s in read_searches(parent).items()}
    tried_in: dict[Path, list[Path]] = {}  # the files of the searches that a run is a trial of
    for file, search in found.items():
        for trial in search.trials:
            tried_in.setdefault(file.parent.parent / trial.run, []).append(file)
    chosen = {
        file: {_path(run) for run in runs if is_chosen(run, search)}
        for file, search in found.items()
    }
    results = set().union(*chosen.values())
    ordinary = {_identity(run) for run in runs if _path(run) not in tried_in}

    def is_result(run: RecordedRun) -> bool:
        surpassed = [f for f in tried_in.get(_path(run), ()) if chosen[f] or not found[f].best]
        return not surpassed or _path(run) in results or _identity(run) in ordinary

    kept = [run for run in runs if is_result(run)]
    trials = [run for run in runs if not is_result(run)]
    searches = [s for s in found.values() if any(is_of_search(run, s) for run in runs)]
    return SeparatedRuns(kept, trials, searches) if kept else SeparatedRuns(trials, [], searches)


def is_of_search(run: RecordedRun, search: Search) -> bool:
    """Whether the run differs from the search's experiment only in seed and searched settings."""
    same_algorithm = run.algorithm == search.algorithm
    return same_algorithm and _unsearched(run.settings, search) == _unsearched(
        search_settings(search), search
    )


def is_chosen(run: RecordedRun, search: Search) -> bool:
    """Whether the run has the settings that the search found to be the best."""
    best = search.best
    return (
        best is not None
        and all(run.settings.get(key) == value for key, value in best.values.items())
        and is_of_search(run, search)
    )


def search_settings(search: Search) -> dict[str, Any]:
    """The settings of the search's experiment, as those of a run."""
    settings = affecting(flatten(up_to_date(search.experiment)), "results")
    return {key: value for key, value in settings.items() if key != "seed"}


def _unsearched(settings: dict[str, Any], search: Search) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in search.space}


def _identity(run: RecordedRun) -> str:
    """The run's settings without its seed."""
    return repr(sorted(run.versioned_settings.items()))


def _path(run: RecordedRun) -> Path:
    return run.directory.resolve()
