"""The commands `run` and `compare`: train one federation, or several on the same experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.execution import show_results, train, train_all
from fedadb.cli.terminal import (
    ExperimentArgument,
    FromRoundOption,
    SettingsOption,
    TrackOption,
    checked_table,
    console,
    experiment_table,
    sets,
    show_error,
    show_message,
)
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
    algorithms: Annotated[
        str, typer.Option(help="Algorithms, separated by commas; your own are module:Class.")
    ] = "fedavg,fedadb",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    settings: SettingsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A directory for the runs; by default runs/compare-DATASET."),
    ] = None,
    track: TrackOption = None,
) -> None:
    """Train several algorithms on the same experiment, and report on them together.

    EXPERIMENT is a TOML file; without one, the command compares on digits. Finished runs are
    skipped. The report covers all runs in the directory, with the algorithms of this command first.
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
    directory = out or Path("runs") / f"compare-{str(experiments[0].dataset).rpartition('/')[2]}"
    outcome = train_all(experiments, directory, trackers, sets(settings, "engine.kernels"))
    if outcome.finished:
        show_results(outcome.finished, names)
        page = report_comparison(outcome.finished, names, directory)
        show_message(f"Page: {page}\nResults: {directory}")
    outcome.exit_if_failed()


def report_comparison(compared: Sequence[Path], methods: Sequence[str], directory: Path) -> Path:
    """Report on all runs in the directory, so that a smaller comparison does not hide a larger one.

    Args:
        compared: The runs of this comparison.
        methods: Their algorithms, which come first in the report, in this order.
        directory: The directory that contains the compared runs and maybe others.

    Returns:
        The path of the report's page.
    """
    from fedadb.report.comparison import arrange
    from fedadb.report.output import write_report
    from fedadb.report.recorded_runs import collect_runs, read_recorded_run

    runs = [read_recorded_run(path) for path in compared]
    collected = collect_runs([directory])
    for error in collected.errors:
        show_error(error)
    # An earlier version of one's own algorithm has the same settings in another directory.
    current = [(run.seed, run.settings) for run in runs]
    runs += [run for run in collected.runs if (run.seed, run.settings) not in current]
    comparison = arrange(runs, methods)
    datasets, names = (
        ", ".join(dict.fromkeys(label.partition(", ")[0] for label in labels))
        for labels in (comparison.settings, comparison.methods)
    )
    return write_report(comparison, f"{datasets}: {names}", directory / "report")
