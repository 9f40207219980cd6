"""Running experiments in sight of the user: one, or many that belong together."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedadb.cli.terminal import complain, out, tell, show_progress
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from rich.progress import Progress

    from fedadb.experiment.config import Experiment
    from fedadb.cli.display import Together


def train(
    e: "Experiment",
    place: Path,
    progress: "Progress",
    tensorboard: bool = False,
    together: "Together | None" = None,
) -> None:
    """Run the experiment in its directory, or go on with it."""
    from fedadb.engine.process import cores
    from fedadb.experiment.run import begin
    from fedadb.cli.display import follow
    from fedadb.cli.tensorboard import events, require

    title = f"{type(e.algorithm).__name__} on {e.dataset}, seed {e.seed}"
    workers = e.engine.workers
    elsewhere = e.engine.backend == "ray" and e.engine.address is not None
    if workers != "auto" and workers > cores() and not elsewhere:
        complain(f"engine.workers = {workers}, and there are {cores()} cores: they share them")
    if tensorboard:
        require()
    try:
        with begin(e, place, show_progress) as begun:
            if len(begun.done) == e.rounds:
                tell(f"{title}: done earlier, in {place}")
            with events(place, begun.done, tensorboard) as write:
                follow(begun, e.rounds, progress, title, write, together)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Fault(f"{where}{error.strerror or error}; what is done so far is kept") from error
    except KeyboardInterrupt:
        complain(f"stopped; the same command goes on from the last round in {place}")
        raise typer.Exit(130) from None


def train_all(
    experiments: "Sequence[Experiment]",
    place: Path,
    report: Path,
    title: str,
    tensorboard: bool,
    then: Callable[[list[Path]], None] = lambda done: None,
) -> None:
    """Run all of them in one directory, and report on them; one that fails stops no other.

    `then` is for what else is to be done with the runs that ended well.
    """
    from fedadb.experiment.directory import run_name
    from fedadb.experiment.run import done_rounds
    from fedadb.cli.display import Together, bar

    if place.exists() and not place.is_dir():
        raise BadInput(f"{place} is a file; --out must name a directory")
    done: list[Path] = []
    failed: dict[str, list[str]] = {}  # what went wrong, and in which runs
    wrong = 0  # of them by what was asked for
    with bar(out) as progress:
        together = Together(progress, len(experiments), sum(e.rounds for e in experiments))
        for e in experiments:
            directory, before = place / run_name(e), together.done
            try:
                together.skip(done_rounds(directory))
                train(e, directory, progress, tensorboard, together)
                done.append(directory)
            except (BadInput, Fault) as error:
                failed.setdefault(str(error), []).append(directory.name)
                wrong += isinstance(error, BadInput)
            except typer.Exit:
                raise
            except Exception:  # a bug; the other runs may not have it
                traceback.print_exc(file=sys.stderr)
                failed.setdefault("a bug, as told above", []).append(directory.name)
            together.end(before + e.rounds)
    for message, names in failed.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        complain(f"{names[0]}{others}: {message}")
    if done:
        show(done, title, report)
        tell(f"Results: {place}")
        then(done)
    if failed:
        runs = sum(map(len, failed.values()))
        complain(f"{runs} of {len(experiments)} runs failed; the same command tries them again")
        raise typer.Exit(2 if wrong == len(experiments) else 1)


def show(directories: "Sequence[Path]", title: str, report: Path | None) -> None:
    """What came of runs: a table here and, if it has a place, a report."""
    from fedadb.cli.display import shown
    from fedadb.report.groups import arrange  # late: it takes a while to load
    from fedadb.report.runs import read
    from fedadb.report.tables import summary

    board = arrange([read(directory) for directory in directories])
    table = summary(board)
    for part in shown(table, out.width):
        out.print(part)
    tell(" ".join(table.notes))
    if report:
        from fedadb.report.write import write_report

        tell(f"Page: {write_report(board, title, report)}")
