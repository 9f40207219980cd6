"""The page's data: what recorded runs contain, as plain values for JSON."""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fedadb.report.anchors import kept_anchors
from fedadb.report.cells import Cell, Table
from fedadb.report.comparison import Comparison
from fedadb.report.convergence import measure_convergence
from fedadb.report.formats import comma_separated
from fedadb.report.labels import method_colours
from fedadb.report.method_settings import row_settings
from fedadb.report.metrics import ewma, t_quantile
from fedadb.report.page_analyses import analysis_data, analysis_pictures
from fedadb.report.page_sweeps import sweep_data
from fedadb.report.personal import KINDS, client_curve
from fedadb.report.recorded_runs import RecordedRun
from fedadb.report.tables import all_tables
from fedadb.report.thinning import rounded, thin
from fedadb.storage.records import REQUIRED, Record
from fedadb.storage.run_directory import EXPERIMENT

MAX_POINTS = 500  # per curve
MAX_CLASS_VALUES = 2_000_000  # class accuracies, in all runs together
PACE = 10  # recent rounds, whose time tells how long the rest takes
COSTS = ("bytes_down", "bytes_up")  # and every key that ends in _seconds
ACCURACIES = ("validation_accuracy", "in_local", "out_local")  # shown in per cent


def page_data(comparison: Comparison, title: str) -> dict[str, Any]:
    """Everything that the page shows."""
    all_runs = comparison.all_runs
    class_rounds = max(2, MAX_CLASS_VALUES // sum(run.classes for run in all_runs))
    shown = []
    for setting in comparison.settings:
        methods = comparison.by_method(setting)
        # The same rounds for all runs of a setting: the page averages over seeds by position.
        longest = max(len(run.rounds) for seeds in methods.values() for run in seeds)
        points, class_points = thin(longest, MAX_POINTS), thin(longest, class_rounds)
        for method, seeds in methods.items():
            shown += [
                {"method": method, "setting": setting, **_run(run, points, class_points)}
                for run in seeds
            ]
    most_seeds = max(map(len, comparison.runs.values()))
    return {
        "title": title,
        "methods": comparison.methods,
        "settings": comparison.settings,
        "colours": method_colours(comparison.methods),
        # For the mean of n seeds, n = 2, 3, …: intervals depend on which seeds are shown.
        "t_quantiles": {n: t_quantile(n) for n in range(2, most_seeds + 1)},
        "tables": {table.name: _table(table) for table in all_tables(comparison)},
        "row_settings": row_settings(comparison),
        "sweeps": sweep_data(comparison),
        "convergence": {
            setting: _convergence(comparison.by_method(setting)) for setting in comparison.settings
        },
        "quantities": _quantities(all_runs),
        "personal_kinds": list(KINDS.items()),
        "runs": shown,
    }


def _table(table: Table) -> dict[str, Any]:
    rows = [list(map(_cell, row)) for row in table.rows]
    return {**table._asdict(), "rows": rows, "csv": comma_separated(table)}


def _cell(cell: Cell) -> dict[str, Any]:
    paper = "" if cell.paper is None else str(cell.paper)
    return {"text": cell.text, "number": cell.number, "best": cell.best, "paper": paper}


def _convergence(runs: Mapping[str, list[RecordedRun]]) -> dict[str, Any]:
    """The rounds of each method to each target, which is in per cent; None: not reached."""
    measured = measure_convergence(runs)
    return {
        "targets": [rounded(100 * target) for target in measured.targets.values()],
        "rounds": {method: list(needed.values()) for method, needed in measured.rounds.items()},
        "running": sorted(measured.running),
    }


def _quantities(runs: Sequence[RecordedRun]) -> list[dict[str, str]]:
    """What runs recorded beyond the required keys: first algorithms' measurements, then costs."""
    keys = dict.fromkeys(key for run in runs for key in _measured_keys(run))
    return [
        {"key": key, "label": f"{key} (%)" if _is_accuracy(key) else key}
        for key in sorted(keys, key=lambda key: key in COSTS or key.endswith("_seconds"))
    ]


def _is_accuracy(key: str) -> bool:
    return key in ACCURACIES or (key.startswith("personal_") and not key.endswith("_seconds"))


def _measured_keys(run: RecordedRun) -> list[str]:
    """The keys of numbers in any round: some are not measured in the first."""
    numbers = dict.fromkeys(
        key
        for record in run.rounds
        for key, value in record.items()
        if isinstance(value, (int, float, type(None)))
    )
    return [key for key in numbers if key not in REQUIRED]


def _run(run: RecordedRun, points: Sequence[int], class_points: Sequence[int]) -> dict[str, Any]:
    """A run at the given rounds, counted from 0; class accuracies at rounds of their own."""

    def at_points(values: Sequence[float | None]) -> list[float | None]:
        return [rounded(values[i]) for i in points if i < len(values)]

    def measured(key: str) -> list[float | None]:
        values = [record.get(key) for record in run.rounds]
        return _percent(values) if _is_accuracy(key) else values

    accuracy = [100 * a for a in run.accuracy]
    loss = [record["loss"] for record in run.rounds]
    seconds = [record["seconds"] for record in run.rounds]
    secret = None in seconds  # it would tell who took part
    return {
        "seed": run.seed,
        "directory": run.directory.name,
        "done": len(run.rounds),
        "total": run.total_rounds,
        "seconds": None if secret else rounded(sum(seconds)),
        "pace": None if secret else rounded(fmean(seconds[-PACE:])),
        "bytes": sum(map(_traffic, run.rounds)),
        "t": [i + 1 for i in points if i < len(run.rounds)],
        "accuracy": at_points(accuracy),
        "smooth accuracy": at_points(ewma(accuracy)),  # smoothed before rounds are left out
        "loss": at_points(loss),
        "smooth loss": at_points(loss if None in loss else ewma(loss)),
        "measured": {key: at_points(measured(key)) for key in _measured_keys(run)},
        "class_t": [i + 1 for i in class_points if i < len(run.rounds)],
        # In tenths of a per cent: short numbers, as exact as a test set of a thousand images.
        "class_accuracy": [
            [None if a is None else round(1000 * a) for a in run.rounds[i]["class_accuracy"]]
            for i in class_points
            if i < len(run.rounds)
        ],
        "partition": run.partition,
        "personal": {kind: _over_clients(client_curve([run], kind)) for kind in run.personal},
        "anchors": kept_anchors(run.directory),
        "analysis": analysis_data(run),
        "pictures": analysis_pictures(run),
        "experiment": (run.directory / EXPERIMENT).read_text(encoding="utf-8"),
        "environment": json.dumps(run.environment, indent=2),
    }


def _traffic(record: Record) -> int:
    """The bytes of a round to and from all its clients; 0 if an earlier version wrote it."""
    return int((record.get("bytes_down", 0) + record.get("bytes_up", 0)) * len(record["clients"]))


def _over_clients(curve: Sequence[float]) -> dict[str, list[float | None]]:
    """The accuracy over the share of clients (%), from the worst client to the best."""
    points = thin(len(curve), MAX_POINTS)
    return {
        "x": [rounded(100 * (k + 0.5) / len(curve)) for k in points],
        "y": [rounded(curve[k]) for k in points],
    }


def _percent(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else 100 * value for value in values]
