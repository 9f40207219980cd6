"""The clients' personal models in a report: their table, and their accuracies in order."""

from collections.abc import Sequence

from fedadb.report.cells import Cell, Number, Score, Table
from fedadb.report.comparison import Comparison
from fedadb.report.metrics import seed_statistics
from fedadb.report.notes import notes
from fedadb.report.recorded_runs import RecordedRun
from fedadb.storage.records import Record

KINDS = {"global": "global model", "tuned": "fine-tuned model", "head": "own head"}
STATISTICS = {"mean": "mean", "worst": "worst tenth", "spread": "spread"}
NOTE = (
    "Each client is tested on the classes of its own rows, in their proportions. The worst tenth "
    "is the mean over the clients of lowest accuracy; the spread is the standard deviation over "
    "clients."
)


def personal_table(comparison: Comparison) -> Table | None:
    """Mean, worst tenth and spread over clients; None if no run evaluated personal models."""
    found = {
        (setting, method): [run for run in runs if run.personal_record]
        for setting in comparison.settings
        for method, runs in comparison.by_method(setting).items()
    }
    records = [run.personal_record or {} for runs in found.values() for run in runs]
    kinds = [kind for kind in KINDS if any(f"personal_{kind}_mean" in r for r in records)]
    if not kinds:
        return None
    keys = [f"personal_{kind}_{statistic}" for kind in kinds for statistic in STATISTICS]
    rows = [
        [
            Cell(setting),
            Cell(method),
            Cell(Number(min(r["round"] for r in map(_record, runs)))),
            *(_score(runs, key) for key in keys),
        ]
        for (setting, method), runs in found.items()
        if runs
    ]
    columns = [f"{kind} {name}" for kind in kinds for name in STATISTICS.values()]
    header = ["setting", "method", "round", *columns]
    title = "Personal models: accuracy over clients (%)"
    return Table("personal", title, header, rows, [*notes(comparison), NOTE])


def client_curve(runs: Sequence[RecordedRun], kind: str) -> list[float]:
    """The accuracy (%) of all clients of these runs that have one, from the lowest."""
    return sorted(100 * a for run in runs for a in run.personal.get(kind, ()) if a is not None)


def _record(run: RecordedRun) -> Record:
    return run.personal_record or {}


def _score(runs: Sequence[RecordedRun], key: str) -> Cell:
    values = [value for run in runs if (value := _record(run).get(key)) is not None]
    if not values:
        return Cell(None)
    mean, deviation, seeds = seed_statistics(values)
    running = not all(run.finished for run in runs)
    return Cell(Score(100 * mean, 100 * deviation if seeds > 1 else None, running))
