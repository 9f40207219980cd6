"""The notes on how methods got their settings: the runs that each was given to find them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedadb.experiment.presets import LEARNING_RATE, RATE_RUNS, tuned_rate
from fedadb.report.comparison import Comparison
from fedadb.report.labels import method_names
from fedadb.storage.searches import Search


def tuning_notes(comparison: Comparison) -> list[str]:
    """How many runs each method was given to find its settings, and what the settings are."""
    given = {method: _given(comparison, method) for method in comparison.methods}
    unfinished = [search.algorithm for search in comparison.searches if not search.complete]
    if any(text != "none" for text in given.values()):
        searched = dict.fromkeys(key for search in comparison.searches for key in search.space)
        unnamed = [key for key in searched if key in comparison.method_settings]
        lines = [_budgets(given), *(_values(comparison, key) for key in unnamed)]
    else:
        lines = [_untuned(comparison)]
    lines += _at_the_end(comparison)
    if unfinished:
        names = method_names(dict.fromkeys(unfinished)).values()
        lines.append(f"The search for settings is not finished: {', '.join(names)}.")
    return lines


def _at_the_end(comparison: Comparison) -> list[str]:
    """Methods whose best value is an end of its range: a wider range might have a better one."""
    names = method_names(dict.fromkeys(search.algorithm for search in comparison.searches))
    ends: dict[str, list[str]] = {}
    for search in comparison.searches:
        best = search.best.values if search.best else {}
        for key in _varied(search):
            match search.space[key]:
                case {"low": low, "high": high} if best.get(key) in (low, high):
                    value = f"{key} = {_text(best[key])}"
                    ends.setdefault(value, []).append(names[search.algorithm])
    return [
        f"At the end of the searched range: {value} ({', '.join(dict.fromkeys(methods))})."
        for value, methods in ends.items()
    ]


def _given(comparison: Comparison, method: str) -> str:
    """What the method was given in all settings: "4 runs to find local.lr", or "none"."""
    settings = [s for s in comparison.settings if (method, s) in comparison.runs]
    searches = [comparison.search_of(method, setting) for setting in settings]
    return " or ".join(dict.fromkeys(_budget(search) for search in searches))


def _budget(search: Search | None) -> str:
    if search is None:
        return "none"
    n = len(search.tried)
    runs = "1 run" if n == 1 else f"{n} runs"
    return f"{runs} to find {' and '.join(_varied(search))}"


def _varied(search: Search) -> list[str]:
    """The settings of which several values were tried."""
    tried = {key: {str(t.values.get(key)) for t in search.tried} for key in search.space}
    return [key for key, values in tried.items() if len(values) > 1] or list(search.space)


def _budgets(given: dict[str, str]) -> str:
    if len(set(given.values())) == 1:
        (text,) = set(given.values())
        each = "Each method" if len(given) > 1 else next(iter(given))
        return f"{each} was given {text} (chosen on validation data)."
    by_method = "; ".join(f"{method}: {text}" for method, text in given.items())
    return f"Runs to find settings (chosen on validation data): {by_method}."


def _untuned(comparison: Comparison) -> str:
    runs = comparison.all_runs
    if all(
        r.settings[LEARNING_RATE] == tuned_rate(r.experiment["dataset"], r.algorithm) for r in runs
    ):
        return (
            f"Learning rates are the dataset's defaults, which {RATE_RUNS} runs per method chose "
            f"on validation data: {_by_method(comparison, LEARNING_RATE)}."
        )
    values = {run.settings[LEARNING_RATE] for run in runs}
    if len(values) == 1:
        return f"No method was tuned: all ran at lr={values.pop():g}."
    if LEARNING_RATE not in comparison.method_settings:  # the labels name it
        return "No method was tuned."
    return f"Learning rates were given, not searched here: {_by_method(comparison, LEARNING_RATE)}."


def _values(comparison: Comparison, key: str) -> str:
    """The values of a searched setting, in a sentence."""
    name = "Learning rates" if key == LEARNING_RATE else f"Values of {key}"
    return f"{name}: {_by_method(comparison, key)}."


def _by_method(comparison: Comparison, key: str) -> str:
    """Each method's value; each setting's, if all methods share it; or both, if neither is one."""
    values: dict[str, dict[str, str]] = {}  # by setting and method
    for setting in comparison.settings:
        for method, (run, *_) in comparison.by_method(setting).items():
            if key in run.settings:
                values.setdefault(setting, {})[method] = _text(run.settings[key])
    of_methods = _constant([pair for methods in values.values() for pair in methods.items()])
    of_settings = _constant([(s, v) for s, methods in values.items() for v in methods.values()])
    if constant := of_methods or of_settings:
        return _listed(constant)
    return "; ".join(f"{setting}: {_listed(methods)}" for setting, methods in values.items())


def _constant(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The value of each name; empty if a name has several."""
    return dict(pairs) if len(set(pairs)) == len(dict(pairs)) else {}


def _listed(values: Mapping[str, str]) -> str:
    if any("," in name for name in values):
        return "; ".join(f"{name}: {value}" for name, value in values.items())
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
