"""The commands `run` and `compare`: train one federation, or several on the same experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.execution import Outcome, show_results, train, train_all
from fedadb.cli.reporting import report_comparison, warn_if_untuned
from fedadb.cli.terminal import (
    AlgorithmsOption,
    ExperimentArgument,
    FromRoundOption,
    SettingsOption,
    TrackOption,
    checked_table,
    console,
    experiment_table,
    set_keys,
    sets,
    show_message,
)
from fedadb.cli.tune import TunedOption, tune_groups
from fedadb.core.errors import BadInput


def run(
    experiment: ExperimentArgument = None,
    settings: SettingsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's directory; by default runs/NAME, named by the experiment."),
    ] = None,
    track: TrackOption = None,
    from_round: FromRoundOption = None,
) -> None:
    """Train one federation.

    EXPERIMENT is a TOML file; without one, the command trains FedADB on digits. An interrupted run
    resumes after its last finished round.
    """
    from fedadb.observers import make_trackers

    trackers = make_trackers(track)
    table = checked_table(experiment, settings)
    from fedadb.cli.display import progress_bars
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.identity import default_directory

    e = Experiment.read(table)
    directory = out or default_directory(e)
    with progress_bars(console) as bars:
        train(
            e,
            directory,
            bars,
            trackers,
            from_round=from_round,
            any_kernels=sets(settings, "engine.kernels"),
        )
    show_results([directory])
    show_message(f"Results: {directory}")


def compare(
    experiment: ExperimentArgument = None,
    algorithms: AlgorithmsOption = "fedavg,fedadb",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    tuned: TunedOption = None,
    settings: SettingsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A directory for the runs; by default runs/compare-DATASET, with -tuned if tuned."
        ),
    ] = None,
    track: TrackOption = None,
) -> None:
    """Train several algorithms on the same experiment, and report on them together.

    EXPERIMENT is a TOML file; without one, the command compares on digits. Finished runs are
    skipped. The report covers all runs in the directory, with the algorithms of this command first.
    With --tuned, each algorithm is first given that many runs to find its settings, on validation
    data of the first seed.
    """
    from fedadb.experiment.precheck import precheck
    from fedadb.observers import make_trackers

    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise BadInput(f"--seeds {seeds!r}: must be whole numbers, such as 0,1,2") from None
    names = [name.strip() for name in algorithms.split(",")]
    trackers = make_trackers(track)
    table = experiment_table(experiment, settings)
    for name in names:  # settings of an algorithm are checked when it is known whose they are
        precheck({**table, "algorithm": name})
    from fedadb.experiment import study

    experiments = study.compare(table, names, numbers)
    dataset = str(experiments[0].dataset).rpartition("/")[2]
    directory = out or Path("runs") / f"compare-{dataset}{'' if tuned is None else '-tuned'}"
    kernels = sets(settings, "engine.kernels")
    searches = Outcome()
    if tuned is not None:
        experiments, searches = tune_groups(
            experiments, set_keys(settings), tuned, directory, trackers, kernels
        )
    outcome = train_all(experiments, directory, trackers, kernels)
    if outcome.finished:
        show_results(outcome.finished, names)
        page = report_comparison(outcome.finished, names, directory)
        show_message(f"Page: {page}\nResults: {directory}")
        if tuned is None:
            warn_if_untuned(experiments)
    searches.exit_if_failed()
    outcome.exit_if_failed()
