"""The notes below tables: how many seeds and rounds, how settings were found, what is missing."""

from fedadb.experiment.presets import scenario
from fedadb.report import paper
from fedadb.report.comparison import Comparison
from fedadb.report.labels import short_setting
from fedadb.report.tuning_notes import tuning_notes


def notes(comparison: Comparison) -> list[str]:
    """The notes below a table of means over seeds."""
    return [_seeds(comparison), *notes_on_runs(comparison)]


def notes_on_runs(comparison: Comparison) -> list[str]:
    """The notes below any table."""
    lines = []
    runs = comparison.all_runs
    if unfinished := sum(not run.finished for run in runs):
        lines.append(f"{unfinished} of the runs are not finished.")
    if lost := sum(len(record.get("lost", ())) for run in runs for record in run.rounds):
        lines.append(f"{lost} replies were lost; rounds.jsonl has the reasons.")
    lines += tuning_notes(comparison)
    lines += _dataset_values(comparison)
    lines += _unlabelled(comparison)
    return lines + _rounds(comparison)


def _seeds(comparison: Comparison) -> str:
    seeds = {len(runs) for runs in comparison.runs.values()}
    if seeds == {1}:
        return "One seed."
    few, many = min(seeds), max(seeds)
    number = str(few) if few == many else f"{few} to {many}"
    return f"Mean ± population standard deviation over {number} seeds."


def _dataset_values(comparison: Comparison) -> list[str]:
    """The methods that have another value of a setting on one dataset, as in the paper."""
    lines = []
    for (method, setting), (run, *_) in comparison.runs.items():
        values = paper.settings_on(run.experiment["dataset"], run.algorithm)
        used = [short_setting(k, v) for k, v in values.items() if run.settings.get(k) == v]
        if used and not any(word in method for word in used):
            lines.append(f"{method} on {setting}: {', '.join(used)}.")
    return lines


def _unlabelled(comparison: Comparison) -> list[str]:
    """The settings that differ between columns of one dataset and that the labels do not name."""
    settings_of = {s: comparison.first_run(s).settings for s in comparison.settings}
    lines = []
    for label, settings in settings_of.items():
        others = [s for s in settings_of.values() if s["dataset"] == settings["dataset"]]
        different = [
            short_setting(key, value)
            for key, value in settings.items()
            if not (key.startswith("algorithm.") or key in comparison.method_settings)
            and any(s.get(key, value) != value for s in others)
        ]
        sizes = ("K=", "ρ=") if scenario(settings) else ()  # the scenario names them
        rest = [word for word in different if word not in label and not word.startswith(sizes)]
        if rest:
            lines.append(f"{label}: also {', '.join(rest)}.")
    return lines


def _rounds(comparison: Comparison) -> list[str]:
    """Remarks on the number of rounds, each once."""
    settings: dict[str, list[str]] = {}
    for setting in comparison.settings:
        settings.setdefault(rounds_deviation(comparison, setting), []).append(setting)
    whole = len(settings) == 1 and len(comparison.settings) > 1
    return [
        f"{'All settings' if whole else '; '.join(labels)}: {deviation}."
        for deviation, labels in settings.items()
        if deviation
    ]


def rounds_deviation(comparison: Comparison, setting: str) -> str:
    """A remark if the setting's runs have another number of rounds than the paper's; "" if not."""
    run = comparison.first_run(setting)
    published = paper.settings()["rounds"].get(run.experiment["dataset"])
    if published in (None, run.total_rounds):
        return ""
    return f"{run.total_rounds} rounds, where the paper has {published}"
