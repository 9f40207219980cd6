"""The curves behind the rows: the accuracy of every round, in a second file beside the rows.

NAME.csv has one row per run, NAME.curves.csv the accuracy of each of its rounds, and the accuracy
of each class where the seed is 0, both in per cent.
"""

from pathlib import Path

from evidence.rows import KEY, Row, row_identity, rows_so_far, write_rows
from fedadb.report.recorded_runs import RecordedRun

COLUMNS = (*KEY, "accuracy", "class_accuracy")
NOT_MEASURED = "-"


def curves_file(rows: Path) -> Path:
    return rows.with_suffix(".curves.csv")


def curve_of(run: RecordedRun, row: Row) -> Row:
    # Classes take the space of many curves, and a heat map shows one run.
    classes = zip(*run.class_accuracy, strict=True) if run.seed == 0 else ()
    return {
        **{key: row[key] for key in KEY},
        "accuracy": " ".join(f"{100 * a:.2f}" for a in run.accuracy),
        "class_accuracy": ";".join(
            " ".join(NOT_MEASURED if a is None else f"{100 * a:.0f}" for a in of_class)
            for of_class in classes
        ),
    }


def add_curve(curve: Row, to: Path) -> None:
    """Add the curves of a run; those of the same experiment are replaced."""
    kept = [one for one in rows_so_far(to) if row_identity(one) != row_identity(curve)]
    write_rows([*kept, curve], to, COLUMNS)


def read_curves(rows: Path) -> dict[str, list[float]]:
    """The accuracy of each round, in [0, 1], by the identity of the run."""
    return {
        row_identity(one): [float(a) / 100 for a in one["accuracy"].split()]
        for one in rows_so_far(curves_file(rows))
    }


def class_curves(curve: Row) -> list[list[float | None]]:
    """Classes × rounds, in [0, 1]; None where a class was not measured."""
    return [
        [None if a == NOT_MEASURED else float(a) / 100 for a in of_class.split()]
        for of_class in curve["class_accuracy"].split(";")
    ]
