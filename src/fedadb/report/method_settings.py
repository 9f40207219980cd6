"""The settings of the methods that a table compares."""

from fedadb.experiment.meanings import all_settings
from fedadb.experiment.presets import LEARNING_RATE
from fedadb.report.comparison import Comparison
from fedadb.report.labels import short_setting
from fedadb.report.recorded_runs import RecordedRun

TABLES = (
    "algorithm.",
    "local.",
    "server.",
    "filter.",
)  # what a method may have values of its own for


def row_settings(comparison: Comparison) -> list[dict[str, str]]:
    """For each row of the summary table, what is worth tuning, and all settings of the method."""
    return [
        {"text": _short(runs[0]), "more": _all(runs[0])}
        for setting in comparison.settings
        for runs in comparison.by_method(setting).values()
    ]


def _short(run: RecordedRun) -> str:
    """The learning rate, and what else of the method is worth a search: `lr=0.03, eta=1`."""
    own = [s.key for s in all_settings() if s.searched and s.owner == run.algorithm]
    keys = [LEARNING_RATE, *(key for key in own if key.startswith("algorithm."))]
    return ", ".join(short_setting(key, run.settings[key]) for key in keys if key in run.settings)


def _all(run: RecordedRun) -> str:
    settings = {key: v for key, v in run.settings.items() if key.startswith(TABLES)}
    return "\n".join(f"{key} = {value}" for key, value in settings.items())
