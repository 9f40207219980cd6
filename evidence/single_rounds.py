"""Single rounds: the first of runs that take days, and how confident models are of anchors."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from evidence.markdown import NOTHING, table
from evidence.rows import KEY, MEASURED, Row, row_of, rows_so_far, write_rows
from fedadb.core.errors import BadInput
from fedadb.report.labels import METHODS
from fedadb.report.recorded_runs import RecordedRun

OF_RUN = ("rounds", "commit", "processor", "kernels", "torch")
COLUMNS = (*KEY, "round", "accuracy", "seconds", *MEASURED, *OF_RUN)
# τ is the anchors' mean confidence at the server, β the weight of the local branch.
SHOWN = {"tau": "τ", "anchor_confidence": "confidence at clients", "beta": "mean β"}
DAY = 24 * 60 * 60  # seconds


def write_rounds(runs: Sequence[RecordedRun], to: Path) -> int:
    """Write one row per round that the runs have recorded.

    Returns:
        The number of rows.

    Raises:
        BadInput: Two runs are of one method; the tables have one column for each.
    """
    rows = []
    methods = [run.algorithm for run in runs]
    if len(set(methods)) < len(methods):
        raise BadInput(f"{', '.join(methods)}: more than one run of a method")
    for run in runs:
        of_run = row_of(run)
        known = {key: of_run[key] for key in (*KEY, *OF_RUN)}
        for record in run.rounds:
            values = {key: record.get(key) for key in MEASURED}
            rows.append(
                {
                    **known,
                    "round": str(record["round"]),
                    "accuracy": f"{100 * record['accuracy']:.4f}",
                    "seconds": f"{record['seconds']:.1f}",
                    **{key: "" if v is None else f"{v:.4f}" for key, v in values.items()},
                }
            )
    write_rows(rows, to, COLUMNS)
    return len(rows)


def first_rounds(results: Path) -> str:
    """Rounds × methods: accuracy, and what FedADB's clients report."""
    by_method = _by_method(results)
    longest = max(map(len, by_method.values()), default=0)
    fedadb = by_method.get("fedadb", [])
    body = []
    for t in range(longest):
        accuracies = [_at(rows, t, "accuracy", ".1f") for rows in by_method.values()]
        body.append([str(t + 1), *accuracies, *(_at(fedadb, t, key, ".3f") for key in SHOWN)])
    header = ["round", *(METHODS[method] for method in by_method), *SHOWN.values()]
    return table(header, body) if body else ""


def _at(rows: list[Row], t: int, column: str, form: str) -> str:
    return format(float(rows[t][column]), form) if t < len(rows) and rows[t][column] else NOTHING


def duration(results: Path) -> str:
    """What a round took, and all rounds would take, per method."""
    body = []
    for method, rows in _by_method(results).items():
        seconds = fmean(float(row["seconds"]) for row in rows)
        total = int(rows[0]["rounds"])
        days = f"{seconds * total / DAY:.1f}"
        body.append([METHODS[method], str(len(rows)), f"{seconds:.0f}", f"{total:,}", days])
    header = ["method", "rounds done", "seconds per round", "rounds in all", "days for all"]
    return table(header, body) if body else ""


def _by_method(results: Path) -> dict[str, list[Row]]:
    """The rows of each method in the order of rounds, FedAvg's first."""
    rows = _in_order(results / "resnet18.csv")
    methods = sorted({row["algorithm"] for row in rows}, key=list(METHODS).index)
    return {method: [row for row in rows if row["algorithm"] == method] for method in methods}


def confidences(results: Path) -> str:
    """The anchors' confidence at the server and at the clients, as means of every ten rounds."""
    rows = _in_order(results / "normalisation-rounds.csv")
    body = []
    for ten in (rows[i : i + 10] for i in range(0, len(rows), 10)):
        means = (fmean(float(row[key]) for row in ten) for key in ("tau", "anchor_confidence"))
        body.append([f"{ten[0]['round']} to {ten[-1]['round']}", *(f"{one:.3f}" for one in means)])
    return table(["rounds", "τ", SHOWN["anchor_confidence"]], body) if body else ""


def _in_order(path: Path) -> list[Row]:
    return sorted(rows_so_far(path), key=lambda row: int(row["round"]))


TABLES = {"resnet18": first_rounds, "resnet18-duration": duration, "confidences": confidences}
