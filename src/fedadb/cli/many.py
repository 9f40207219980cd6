"""Running experiments in sight of the user: one, or many that belong together."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedadb.cli.terminal import complain, out, tell, track
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from rich.progress import Progress

    from fedadb.engine.record import Record
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.run import History


def train(
    e: "Experiment",
    place: Path,
    progress: "Progress",
    tensorboard: bool = False,
    each: "Callable[[Record], None]" = lambda record: None,
) -> "History":
    """Run the experiment in its directory, or go on with it."""
    from fedadb.engine.process import cores
    from fedadb.experiment.run import History, begin
    from fedadb.progress import follow
    from fedadb.tensorboard import events

    title = f"{type(e.algorithm).__name__} on {e.dataset}, seed {e.seed}"
    workers = e.engine.workers
    if workers != "auto" and workers > cores():
        complain(f"engine.workers = {workers}, and there are {cores()} cores: they share them")
    try:
        with begin(e, place, track) as begun:
            if len(begun.done) == e.rounds:
                tell(f"{title}: done earlier, in {place}")
            with events(place, begun.done, tensorboard) as write:

                def after(record: "Record") -> None:
                    write(record)
                    each(record)

                rounds = follow(begun.done, begun.rounds, e.rounds, progress, title, after)
            return History(place, rounds)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Fault(f"{where}{error.strerror or error}; what is done so far is kept") from error
    except KeyboardInterrupt:
        complain(f"stopped; the same command goes on from the last round in {place}")
        raise typer.Exit(130) from None


def train_all(
    experiments: "Sequence[Experiment]", place: Path, title: str, tensorboard: bool = False
) -> None:
    """Run all of them in one directory, and report on them; one that fails stops no other."""
    from fedadb.experiment.directory import run_name
    from fedadb.experiment.run import done_rounds
    from fedadb.progress import Together, bar

    done, failed = [], []
    with bar(out) as progress:
        together = Together(progress, len(experiments), sum(e.rounds for e in experiments))
        for e in experiments:
            directory, before = place / run_name(e), together.done
            try:
                together.skip(done_rounds(directory))
                train(e, directory, progress, tensorboard, together.add)
                done.append(directory)
            except (BadInput, Fault) as error:
                failed.append(f"{directory.name}: {error}")
            except typer.Exit:
                raise
            except Exception:  # a bug; the other runs may not have it
                traceback.print_exc(file=sys.stderr)
                failed.append(f"{directory.name}: a bug, as told above")
            together.skip(before + e.rounds - together.done)
            together.end()
    if done:
        _report(done, title, place)
    for message in failed:
        complain(message)
    if failed:
        complain(f"{len(failed)} of {len(experiments)} runs failed; the same command tries again")
        raise typer.Exit(1)


def _report(directories: Sequence[Path], title: str, place: Path) -> None:
    from fedadb.progress import shown
    from fedadb.report.groups import arrange  # late: it takes a while to load
    from fedadb.report.runs import read
    from fedadb.report.tables import summary
    from fedadb.report.write import write_report

    board = arrange([read(directory) for directory in directories])
    out.print(shown(summary(board)))
    page = write_report(board, title, place / "report")
    tell(f"Results: {place}\nPage: {page}")
