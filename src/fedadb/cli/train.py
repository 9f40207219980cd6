"""The commands that train."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedadb.cli.terminal import FILE, SETTINGS, complain, given, out, tell, track
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.run import History


def run(
    experiment: FILE = None,
    settings: SETTINGS = None,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where results go; by default below runs/, named by the run."),
    ] = None,
) -> None:
    """Train one federation. An interrupted run goes on where it stopped.

    EXPERIMENT is a file in TOML; without one, it is FedADB on digits.
    """
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.directory import default_directory
    from fedadb.progress import summary

    e = Experiment.read(given(experiment, settings))
    place = directory or default_directory(e)
    history = _train(e, place)
    out.print(summary({type(e.algorithm).__name__: history}))
    tell(f"Results: {place}")


def compare(
    experiment: FILE = None,
    algorithms: Annotated[
        str, typer.Option(help="Names with commas between them.")
    ] = "fedavg,fedadb",
    seeds: Annotated[str, typer.Option(help="Numbers with commas between them.")] = "0",
    settings: SETTINGS = None,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where results go; by default below runs/, named by the data."),
    ] = None,
) -> None:
    """Train several algorithms on the same experiment, and show them together.

    EXPERIMENT is a file in TOML; without one, it is digits. What is done is not done again.
    """
    from fedadb.experiment.grid import grid
    from fedadb.progress import summary

    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise BadInput(f"--seeds {seeds!r}: must be whole numbers, as in 0,1,2") from None
    runs = grid(
        given(experiment, settings), [name.strip() for name in algorithms.split(",")], numbers
    )
    dataset = next(iter(runs.values())).dataset.rpartition("/")[2]
    place = directory or Path("runs") / f"compare-{dataset}"
    histories = {
        f"{type(e.algorithm).__name__}, seed {e.seed}": _train(e, place / name)
        for name, e in runs.items()
    }
    out.print(summary(histories))
    from fedadb.report.curves import draw_accuracy  # late: it takes a while to load

    picture = place / "accuracy.png"
    draw_accuracy({name: h.accuracy for name, h in histories.items()}, dataset, picture)
    tell(f"Results: {place}\nPicture: {picture}")


def _title(e: "Experiment") -> str:
    return f"{type(e.algorithm).__name__} on {e.dataset}"


def _train(e: "Experiment", place: Path) -> "History":
    """Run the experiment in its directory, in sight of the user."""
    from fedadb.engine.process import cores
    from fedadb.experiment.run import History, begin
    from fedadb.progress import follow

    workers = e.engine.workers
    if workers != "auto" and workers > cores():
        complain(f"engine.workers = {workers}, and there are {cores()} cores: they share them")
    try:
        with begin(e, place, track) as begun:
            if len(begun.done) == e.rounds:
                tell(f"{_title(e)}: done earlier, in {place}")
            return History(place, follow(begun.done, begun.rounds, e.rounds, out, _title(e)))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Fault(f"{where}{error.strerror or error}; what is done so far is kept") from error
    except KeyboardInterrupt:
        complain(f"stopped; the same command goes on from the last round in {place}")
        raise typer.Exit(130) from None
