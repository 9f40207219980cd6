"""The commands that train: one federation, or several on the same experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.many import show, train, train_all
from fedadb.cli.terminal import FILE, SETTINGS, TENSORBOARD, given, out, tell
from fedadb.core.errors import BadInput


def run(
    experiment: FILE = None,
    settings: SETTINGS = None,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where results go; by default below runs/, named by the run."),
    ] = None,
    tensorboard: TENSORBOARD = False,
) -> None:
    """Train one federation. An interrupted run goes on where it stopped.

    EXPERIMENT is a file in TOML; without one, it is FedADB on digits.
    """
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.directory import default_directory
    from fedadb.cli.display import bar

    e = Experiment.read(given(experiment, settings))
    place = directory or default_directory(e)
    with bar(out) as progress:
        train(e, place, progress, tensorboard)
    show([place], "", report=None)
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
    tensorboard: TENSORBOARD = False,
) -> None:
    """Train several algorithms on the same experiment, and report on them together.

    EXPERIMENT is a file in TOML; without one, it is digits. What is done is not done again.
    """
    from fedadb.experiment.study import compare

    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise BadInput(f"--seeds {seeds!r}: must be whole numbers, as in 0,1,2") from None
    names = [name.strip() for name in algorithms.split(",")]
    experiments = grid(given(experiment, settings), names, numbers)
    dataset = experiments[0].dataset.rpartition("/")[2]
    place = directory or Path("runs") / f"compare-{dataset}"
    train_all(experiments, place, place / "report", f"{dataset}: {', '.join(names)}", tensorboard)
