"""Differences between methods, paired by seed: equal seeds have equal data and equal clients."""

from collections.abc import Callable, Mapping, Sequence

from fedadb.report.cells import Cell, Difference, Number, Table
from fedadb.report.comparison import Comparison
from fedadb.report.metrics import best_rounds, last_rounds, paired_difference, picked_round
from fedadb.report.notes import notes_on_runs
from fedadb.report.recorded_runs import RecordedRun

Metric = Callable[[RecordedRun], float | None]

METRICS: dict[str, Metric] = {
    "best 5": lambda run: best_rounds(run.accuracy),
    "picked": lambda run: picked_round(run.accuracy, run.validation_accuracy),
    "last 10": lambda run: last_rounds(run.accuracy),
}


def by_seed(runs: Sequence[RecordedRun], metric: Metric) -> dict[int, float]:
    """The number of each finished run that has it, in per cent."""
    values = {run.seed: metric(run) for run in runs if run.finished}
    return {seed: 100 * value for seed, value in values.items() if value is not None}


def difference_table(comparison: Comparison) -> Table | None:
    """Each method's difference to the reference method; None if there are no two to compare."""
    reference = comparison.fedadb or comparison.methods[0]
    columns = METRICS
    if not any(by_seed(runs, METRICS["picked"]) for runs in comparison.runs.values()):
        columns = {name: metric for name, metric in METRICS.items() if name != "picked"}
    rows = []
    for setting in comparison.settings:
        methods = comparison.by_method(setting)
        other = methods.pop(reference, [])
        for method, runs in methods.items():
            found = [
                paired_difference(by_seed(runs, metric), by_seed(other, metric))
                for metric in columns.values()
            ]
            if best := found[0]:
                cells = [Cell(Difference(d.mean, d.half) if d else None) for d in found]
                rows.append([Cell(setting), Cell(method), *cells, Cell(Number(best.pairs))])
    if not rows:
        return None
    header = ["setting", "method", *columns, "seeds"]
    title = f"Difference to {reference} in points of accuracy, paired by seed [95 % interval]"
    picked = "picked: the round of highest validation accuracy; " if "picked" in columns else ""
    lines = [
        f"best 5: the mean of the best five rounds on the test set; {picked}last 10: the mean of "
        "the last ten rounds.",
        "Intervals are Student's t over the seeds that both methods have finished; one seed has "
        "none.",
    ]
    return Table("differences", title, header, rows, [*lines, *notes_on_runs(comparison)])


def distinguishable_best(runs: Mapping[str, Sequence[RecordedRun]]) -> str | None:
    """The method of highest mean, if its difference to the best of the others excludes 0.

    The interval is that of the differences paired by seed, so that with one seed there is none.
    Methods with unfinished runs do not count.
    """
    values = {
        method: by_seed(seeds, METRICS["best 5"])
        for method, seeds in runs.items()
        if all(run.finished for run in seeds)
    }
    ranked = sorted(values, key=lambda m: -sum(values[m].values()) / len(values[m]))
    if len(ranked) < 2:
        return None
    first, second = ranked[:2]
    difference = paired_difference(values[first], values[second])
    return first if difference and difference.above_zero else None
