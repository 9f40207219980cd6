"""Runs what a CSV file of results does not have yet, one row after the other.

The file is the only state: it survives if the run directories are lost. A run that was interrupted
resumes if its directory is still there, and starts again if it is not.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import filelock

from evidence.curves import add_curve, curve_of, curves_file
from evidence.rows import (
    Row,
    command,
    identity,
    read_rows,
    row_identity,
    row_of,
    rows_so_far,
    write_rows,
)
from fedadb.cli.estimate import MeasuredCosts
from fedadb.core.errors import BadInput, Diverged, Fault
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import done_rounds, rounds
from fedadb.report.recorded_runs import RecordedRun, read_recorded_run

Show = Callable[[str], None]

REPORT_EVERY = 60.0  # seconds between two lines about one run


def missing(experiments: Iterable[Experiment], to: Path) -> list[Experiment]:
    """The experiments that have no row in the file."""
    done = set(map(row_identity, rows_so_far(to)))
    return [e for e in experiments if identity(e.table()) not in done]


def in_order(experiments: Sequence[Experiment], out: Path) -> list[Experiment]:
    """What was begun comes first, then seed 0 of everything, and of each seed the cheap runs.

    Wherever the queue stops, the methods that have a row can be compared.
    """
    costs = MeasuredCosts()

    def priority(e: Experiment) -> tuple[bool, int, float]:
        begun = done_rounds(out / run_name(e)) > 0
        return not begun, e.seed, costs.round_seconds(e) * e.rounds

    for e in experiments:
        if not costs.known(e):
            costs.measure(e)
    return sorted(experiments, key=priority)


def run_queue(
    experiments: Sequence[Experiment],
    to: Path,
    out: Path,
    show: Show = print,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Run the experiments that have no row in `to`, and add each row as soon as it is known.

    Args:
        experiments: All runs of the study.
        to: The CSV file of the rows.
        out: Has a directory for each run.
        show: Is called with lines about the progress.
        seconds: After so many, the queue stops; a later call resumes the run that was in progress.
        clock: Tells the time in seconds.

    Returns:
        The errors of runs that failed; a run that diverged is none of them.
    """
    end = clock() + seconds
    take_rows(missing(experiments, to), to, show)
    waiting = in_order(missing(experiments, to), out)
    errors = []
    total = len(experiments)
    show(f"{total - len(waiting)} of {total} rows are in {to}")
    for e in waiting:
        if clock() >= end:
            break
        if not missing([e], to):  # another process was faster
            continue
        directory = out / run_name(e)
        try:
            if not train(e, directory, end, clock, show):
                break
        except Diverged as error:
            show(f"{directory.name} diverged: {error}")
        except (BadInput, Fault, OSError) as error:
            errors.append(f"{directory.name}: {error}")
            show(errors[-1])
            continue
        row = add_run(read_recorded_run(directory), to)
        done = total - len(missing(experiments, to))
        show(f"{done} of {total}: {directory.name}, best five rounds {row['best5'] or 'none'}")
    return errors


def train(
    e: Experiment, directory: Path, end: float, clock: Callable[[], float], show: Show
) -> bool:
    """Run or resume the experiment; False if the time was over before it had finished."""
    reported = clock()
    for record in rounds(e, directory):
        now = clock()
        if now - reported > REPORT_EVERY:
            reported = now
            show(
                f"  {directory.name}: round {record['round']} of {e.rounds}, accuracy "
                f"{100 * record['accuracy']:.1f} %"
            )
        if now >= end and record["round"] < e.rounds:
            show(f"  {directory.name}: stopped after round {record['round']} of {e.rounds}")
            return False
    return True


def take_rows(experiments: Sequence[Experiment], to: Path, show: Show) -> None:
    """Copy the rows of these experiments that other files in the same directory have."""
    wanted = {identity(e.table()) for e in experiments}
    datasets = {str(e.dataset) for e in experiments}
    for path in sorted(to.parent.glob("*.csv")):
        rows = read_rows(path)
        if path == to or not rows or not {"settings", "trained"} <= rows[0].keys():
            continue
        by_identity = {row_identity(row): row for row in rows if row["dataset"] in datasets}
        curves = rows_so_far(curves_file(path))
        for key in sorted(wanted & by_identity.keys()):
            show(f"{path} has {command(by_identity[key])}")
            add_row(by_identity[key], [one for one in curves if row_identity(one) == key], to)
        wanted -= by_identity.keys()


def add_run(run: RecordedRun, to: Path) -> Row:
    row = row_of(run)
    add_row(row, [curve_of(run, row)], to)
    return row


def add_row(row: Row, curves: Sequence[Row], to: Path) -> None:
    """Add a row and its curves; a row of the same experiment is replaced."""
    with filelock.FileLock(to.with_suffix(".lock")):  # two processes may share a study
        for curve in curves:
            add_curve(curve, curves_file(to))
        others = [one for one in rows_so_far(to) if row_identity(one) != row_identity(row)]
        write_rows([*others, row], to)
