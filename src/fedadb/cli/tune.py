"""The command `tune`: the same number of runs for every method, to find its settings."""

import sys
import traceback
from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedadb.cli.execution import Outcome, ProgressShown, disk_fault, trained_rounds
from fedadb.cli.reporting import report_comparison
from fedadb.cli.terminal import (
    AlgorithmsOption,
    ExperimentArgument,
    SettingsOption,
    TrackOption,
    console,
    experiment_table,
    set_keys,
    sets,
    show_error,
    show_message,
)
from fedadb.core.errors import BadInput, Fault

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.observation import Observer
    from fedadb.experiment.search import SearchPlan
    from fedadb.experiment.space import Space
    from fedadb.storage.records import Record

SearchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        metavar="KEY=VALUES",
        help="Search this setting and no others: a range such as local.lr=0.003..0.1, or values "
        "such as local.lr=0.01,0.03. Can be given several times. By default, the learning rate and "
        "what each algorithm declares.",
    ),
]
TunedOption = Annotated[
    int | None,
    typer.Option(
        metavar="BUDGET",
        min=1,
        help="First give each algorithm this many runs to find its settings, as `fedadb tune`.",
    ),
]
SamplerOption = Annotated[
    str, typer.Option(help="tpe: Optuna's, after four learning rates. grid: evenly spaced values.")
]
PrunerOption = Annotated[
    str, typer.Option(help="Stop runs that are far behind: median, halving, or none.")
]


def tune(
    experiment: ExperimentArgument = None,
    algorithms: AlgorithmsOption = "fedavg,fedadb",
    budget: Annotated[int, typer.Option(min=1, help="How many runs each algorithm is given.")] = 8,
    search: SearchOption = None,
    sampler: SamplerOption = "tpe",
    pruner: PrunerOption = "median",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes, or actors of Ray; as engine.workers."),
    ] = None,
    settings: SettingsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="A directory for the runs; by default runs/tune-DATASET.")
    ] = None,
    track: TrackOption = None,
) -> None:
    """Search the settings of several algorithms, with the same number of runs for each.

    EXPERIMENT is a TOML file; without one, the command tunes on digits. Settings are chosen on
    validation data, so `validation` must be above 0. An interrupted search resumes.
    """
    from fedadb.experiment.precheck import precheck
    from fedadb.observers import make_trackers

    names = [name.strip() for name in algorithms.split(",")]
    trackers = make_trackers(track)
    if workers is not None:
        settings = [*(settings or []), f"engine.workers={workers}"]
    table = experiment_table(experiment, settings)
    for name in names:
        precheck({**table, "algorithm": name})
    from fedadb.experiment import study
    from fedadb.experiment.identity import run_name
    from fedadb.experiment.search import SearchPlan, default_search_directory
    from fedadb.experiment.space import given_space

    experiments = study.compare(table, names, [table.get("seed", 0)])
    space = given_space(search or [], experiments)
    directory = out or default_search_directory(experiments[0])
    plan = SearchPlan(budget, sampler, pruner)
    kernels = sets(settings, "engine.kernels")
    best, outcome = search_all(
        experiments, space, set_keys(settings), plan, directory, trackers, kernels
    )
    if best:
        page = report_comparison([directory / run_name(e) for e in best.values()], names, directory)
        show_tried(list(best.values()), directory)
        for path in outcome.finished:
            show_message(f"Best: fedadb run {path}")
        show_message(f"Page: {page}\nResults: {directory}")
    outcome.exit_if_failed()


def search_all(
    experiments: "Sequence[Experiment]",
    given: "Space",
    fixed: Collection[str],
    plan: "SearchPlan",
    out: Path,
    trackers: "Sequence[Observer]" = (),
    any_kernels: bool = False,
) -> "tuple[dict[str, Experiment], Outcome]":
    """Search the settings of each experiment, one after the other.

    Args:
        experiments: What to tune.
        given: The settings to vary; if empty, those that are declared.
        fixed: The settings that are not varied.
        plan: How each search proceeds.
        out: The directory of the runs.
        trackers: Observers of the runs.
        any_kernels: As in `run`.

    Returns:
        The experiments with their best settings, by the run names of the given ones; and the
        files that hold them. A search that fails does not stop the others.
    """
    from fedadb.cli.display import OverallProgress, progress_bars
    from fedadb.experiment.identity import run_name
    from fedadb.experiment.search import (
        check_searchable,
        find_settings,
        search_path,
        tuned,
        winner_file,
    )
    from fedadb.experiment.space import space_of

    spaces = [space_of(e, given, fixed) for e in experiments]
    for e, space in zip(experiments, spaces, strict=True):
        check_searchable(e, space, plan, out)
    paths = [search_path(out, e, space) for e, space in zip(experiments, spaces, strict=True)]
    show_abandoned(experiments, paths, out)
    best: dict[str, Experiment] = {}
    outcome = Outcome("searches")
    with progress_bars(console) as bars:
        rounds = plan.budget * sum(e.rounds for e in experiments)
        overall = OverallProgress(bars, plan.budget * len(experiments), rounds)

        def train(e: "Experiment", directory: Path) -> "Generator[Record]":
            shown = ProgressShown(bars, title(e, space_of(e, given, fixed)), trackers, overall)
            return trained_rounds(e, directory, shown, any_kernels=any_kernels)

        for e, space in zip(experiments, spaces, strict=True):
            before = overall.done
            try:
                for found in find_settings(e, space, plan, out, train):
                    overall.end_run(before + len(found.trials) * e.rounds)
                best[run_name(e)] = tuned(e, found)
                outcome.finished.append(winner_file(search_path(out, e, space)))
            except (BadInput, Fault) as error:
                outcome.add_failure(e.algorithm.name, str(error), isinstance(error, BadInput))
            except OSError as error:
                outcome.add_failure(e.algorithm.name, str(disk_fault(error)), False)
            except typer.Exit:
                raise
            except Exception:  # a bug; the other searches may not have it
                traceback.print_exc(file=sys.stderr)
                outcome.add_failure(e.algorithm.name, "an unexpected error, shown above", False)
            overall.skip(before + plan.budget * e.rounds - overall.done)
    outcome.show_failures()
    return best, outcome


def by_method(experiments: "Sequence[Experiment]") -> "list[list[Experiment]]":
    """The experiments in groups that differ in their seeds alone."""
    from fedadb.experiment.identity import run_name
    from fedadb.experiment.space import with_values

    groups: dict[str, list[Experiment]] = {}
    for e in experiments:
        groups.setdefault(run_name(with_values(e, {"seed": 0})), []).append(e)
    return list(groups.values())


def tune_groups(
    experiments: "Sequence[Experiment]",
    fixed: Collection[str],
    budget: int,
    out: Path,
    trackers: "Sequence[Observer]" = (),
    any_kernels: bool = False,
) -> "tuple[list[Experiment], Outcome]":
    """Tune experiments that differ in their seeds alone as one, with the first of the seeds.

    Returns:
        All experiments with the settings that were found for them, and the outcome of the searches.
    """
    from fedadb.experiment.identity import run_name
    from fedadb.experiment.search import SearchPlan
    from fedadb.experiment.space import with_values

    groups = by_method(experiments)
    firsts = [same[0] for same in groups]
    plan = SearchPlan(budget)
    best, outcome = search_all(firsts, {}, fixed, plan, out, trackers, any_kernels)
    tuned = [
        with_values(best[name], {"seed": e.seed})
        for same in groups
        if (name := run_name(same[0])) in best
        for e in same
    ]
    return tuned, outcome


def title(e: "Experiment", space: "Space") -> str:
    """The name of a trial on the screen: its method and the searched values."""
    from fedadb.experiment.toml_tables import flatten
    from fedadb.report.labels import short_setting

    settings = flatten(e.table())
    values = [short_setting(key, settings[key]) for key in space]
    return ", ".join([e.algorithm.name, *values])


def show_abandoned(experiments: "Sequence[Experiment]", current: Sequence[Path], out: Path) -> None:
    """Name unfinished searches of these methods in the directory that are not the current ones."""
    from fedadb.storage.searches import read_searches

    methods = [e.table()["algorithm"]["name"] for e in experiments]
    for path, search in read_searches(out).items():
        if search.algorithm in methods and not search.complete and path not in current:
            show_error(
                f"{path} is an unfinished search of {search.algorithm} in another experiment; it "
                "is left as it is"
            )


def show_tried(best: "Sequence[Experiment]", directory: Path) -> None:
    """Print which settings were tried for these experiments, and how well they did."""
    from fedadb.cli.display import result_tables
    from fedadb.experiment.identity import run_name
    from fedadb.report.comparison import arrange
    from fedadb.report.recorded_runs import read_recorded_run
    from fedadb.report.tuning import tuning_table

    table = tuning_table(arrange([read_recorded_run(directory / run_name(e)) for e in best]))
    if table:
        for part in result_tables(table, console.width):
            console.print(part)
