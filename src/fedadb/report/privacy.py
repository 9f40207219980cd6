"""What differentially private runs promise."""

from collections.abc import Sequence

from fedadb.report.cells import Cell, Number, SettingValue, Table
from fedadb.report.comparison import Comparison
from fedadb.report.notes import notes_on_runs
from fedadb.report.recorded_runs import RecordedRun

NOTE = (
    "ε and δ after the last recorded round, for two federations that differ as the table says. The "
    "promise is about the models, and about each run by itself."
)


def privacy_table(comparison: Comparison) -> Table | None:
    """ε and δ of each method in each setting; None if no run is differentially private."""
    rows = [
        [Cell(setting), Cell(method), *_promise(runs)]
        for setting in comparison.settings
        for method, runs in comparison.by_method(setting).items()
        if any("epsilon" in run.rounds[-1] for run in runs)
    ]
    if not rows:
        return None
    header = ["setting", "method", "ε", "δ", "noise multiplier", "rounds", "differ in"]
    title = "Differential privacy"
    return Table("privacy", title, header, rows, [NOTE, *notes_on_runs(comparison)])


def _promise(runs: Sequence[RecordedRun]) -> list[Cell]:
    """Of several seeds, the run that promises least."""
    last = max((run.rounds[-1] for run in runs), key=lambda record: record["epsilon"])
    return [
        Cell(Number(last["epsilon"], decimals=3)),
        Cell(SettingValue(last["delta"])),
        Cell(Number(last["noise_multiplier"], decimals=4)),
        Cell(Number(last["round"])),
        Cell(last["privacy"]),
    ]
