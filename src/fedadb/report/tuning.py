"""What the searches for settings tried."""

from collections.abc import Sequence
from typing import Any

from fedadb.report.cells import Cell, Number, SettingValue, Table
from fedadb.report.comparison import Comparison
from fedadb.report.labels import dataset_name, method_names
from fedadb.report.notes import notes_on_runs
from fedadb.report.recorded_searches import search_settings
from fedadb.storage.searches import Search, Trial

BOLD = "Bold: what was chosen. Trials that were stopped or diverged are never chosen."


def tuning_table(comparison: Comparison) -> Table | None:
    """Each trial of each search, the chosen one marked as best; None if nothing was searched."""
    if not comparison.searches:
        return None
    keys = list(dict.fromkeys(key for search in comparison.searches for key in search.space))
    rows = [
        [Cell(setting), Cell(method), *_trial(trial, keys, search)]
        for setting, method, search in _in_order(comparison)
        for trial in search.tried
    ]
    header = ["setting", "method", *keys, "validation", "rounds", "state"]
    title = "What was tried to find settings: accuracy (%) on validation data, best five rounds"
    return Table(
        "tuning", title, header, rows, ["Bold: what was chosen.", *notes_on_runs(comparison)]
    )


def _in_order(comparison: Comparison) -> list[tuple[str, str, Search]]:
    """The searches with their setting and method, in the order of columns and rows."""
    names = method_names(dict.fromkeys(search.algorithm for search in comparison.searches))
    chosen = [
        (setting, method, search)
        for setting in comparison.settings
        for method in comparison.by_method(setting)
        if (search := comparison.search_of(method, setting))
    ]
    others = [search for search in comparison.searches if search not in [s for *_, s in chosen]]
    return chosen + [(_setting(comparison, s), names[s.algorithm], s) for s in others]


def _setting(comparison: Comparison, search: Search) -> str:
    """The column with the settings of the search's experiment; if there is none, its dataset."""

    def shared(settings: dict[str, Any]) -> dict[str, Any]:
        own = comparison.method_settings | search.space.keys()
        return {
            k: v for k, v in settings.items() if not k.startswith("algorithm.") and k not in own
        }

    for setting in comparison.settings:
        if shared(comparison.first_run(setting).settings) == shared(search_settings(search)):
            return setting
    return dataset_name(search.experiment["dataset"])


def _trial(trial: Trial, keys: Sequence[str], search: Search) -> list[Cell]:
    best = trial is search.best
    chosen = "chosen" if search.complete else "best so far"
    score = None if trial.score is None else Number(100 * trial.score, decimals=2)
    return [
        *(Cell(_value(trial.values[k]), best) if k in trial.values else Cell("") for k in keys),
        Cell(score, best),
        Cell(Number(trial.rounds)),
        Cell(chosen if best else trial.state),
    ]


def _value(value: Any) -> SettingValue | str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return SettingValue(value) if is_number else str(value)
