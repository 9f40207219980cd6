"""The command `reproduce`: the paper's tables and figures."""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedadb.analysis import ANALYSES
from fedadb.cli.analyse import show_numbers
from fedadb.cli.completion import matching
from fedadb.cli.execution import Outcome, show_results, train_all
from fedadb.cli.terminal import (
    SettingsOption,
    TrackOption,
    allow_imports_from,
    console,
    set_keys,
    sets,
    show_message,
    show_progress,
)
from fedadb.cli.tune import TunedOption, by_method, tune_groups
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import ANALYSIS

if TYPE_CHECKING:
    from fedadb.cli.estimate import MeasuredCosts
    from fedadb.experiment.config import Experiment

STUDIES = {
    path.stem: path for path in sorted((Path(__file__).parents[1] / "studies").glob("*.toml"))
}
"""The paper's studies: their files by name."""


def complete_study(incomplete: str) -> list[str]:
    return matching(incomplete, STUDIES)


REPRODUCE_HELP = f"""Run the experiments behind a table or figure of the paper, and report on them.

NAME is one of {", ".join(STUDIES)}; table2 to table6, by their numbers in the paper; or the path
of your own study in TOML. Finished runs are skipped. Studies that have runs in common share them if
--out is the same.
"""


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A study of the paper, or the path of your own in TOML.",
            autocompletion=complete_study,
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,…",
            help="Select a part, such as dataset=organamnist or seed=0,1. Can be given several "
            "times.",
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(
            help="Run a share of the rounds, such as 0.1, with the schedule adjusted so that the "
            "learning rate falls as far."
        ),
    ] = 1.0,
    tuned: TunedOption = None,
    settings: SettingsOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the runs and train nothing. The list shows how long they take, as far as "
            "that was measured before.",
        ),
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="As --dry-run, but first measure the missing times on this machine. They are "
            "kept.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A directory for the runs; by default runs/NAME.")
    ] = None,
    track: TrackOption = None,
) -> None:
    """Run a study, report on its runs, and analyse them if the study asks for it."""
    from fedadb.experiment.study import read_study, select
    from fedadb.experiment.validation import suggest
    from fedadb.observers import make_trackers

    if not 0 < scale <= 1:
        raise BadInput(f"--scale {scale:g}: must be above 0 and at most 1; 0.1 is a tenth")
    trackers = make_trackers(track)
    path = find_study(name)
    allow_imports_from(path.parent)
    study = read_study(path, settings or [], scale)
    for analysis in study.analyses:
        if analysis not in ANALYSES:
            raise BadInput(f"{path}: analyse has {analysis!r}; {suggest(analysis, ANALYSES)}")
    experiments = select(study.experiments, only or [])
    directory = out or Path("runs") / f"{path.stem}{'' if tuned is None else '-tuned'}"
    if dry_run or measure:
        list_runs(experiments, directory, measure)
        if tuned is not None:
            n = len(by_method(experiments))
            show_message(f"Before them: up to {n} × {tuned} runs to find settings")
        return
    title = study.title if scale == 1 else f"{study.title}, {scale:g} of the paper's rounds"
    title += f", {' and '.join(only)}" if only else ""
    title += f", each method tuned with {tuned} runs" if tuned else ""
    # Several studies may share --out, so each has a report of its own there.
    name = f"report-{path.stem}{'' if tuned is None else '-tuned'}"
    report = directory / ("report" if out is None else name)
    kernels = sets(settings, "engine.kernels")
    searches = Outcome()
    if tuned is not None:
        fixed = {*set_keys(settings), *study.varied}
        experiments, searches = tune_groups(experiments, fixed, tuned, directory, trackers, kernels)
    outcome = train_all(experiments, directory, trackers, kernels)
    if outcome.finished:
        show_results(outcome.finished)
        shown = outcome.finished if tuned is None else with_trials(outcome.finished, directory)
        show_message(f"Page: {write_page(shown, title, report)}\nResults: {directory}")
        if study.analyses:
            analyse_runs(outcome.finished, study.analyses)
            write_page(shown, title, report)  # now with the analyses on it
    searches.exit_if_failed()
    outcome.exit_if_failed()


def find_study(name: str) -> Path:
    """The file of a study: one of the paper's by its name, or the user's own by its path."""
    if name.endswith(".toml"):
        return Path(name)
    if name in STUDIES:
        return STUDIES[name]
    from fedadb.experiment.toml_tables import load_toml
    from fedadb.experiment.validation import suggest

    if table := re.fullmatch(r"table(\d)", name):  # most studies have other names than the paper's
        for path in STUDIES.values():
            if load_toml(path)["title"].startswith(f"Table {table[1]}:"):
                return path
    raise BadInput(f"reproduce {name}: is not known; {suggest(name, STUDIES)}")


def write_page(runs: Sequence[Path], title: str, out: Path) -> Path:
    """Write a report on the runs, and return the path of its page."""
    from fedadb.report.comparison import arrange
    from fedadb.report.output import write_report
    from fedadb.report.recorded_runs import read_recorded_run

    return write_report(arrange([read_recorded_run(run) for run in runs]), title, out)


def with_trials(runs: Sequence[Path], directory: Path) -> list[Path]:
    """The runs, and the trials of the searches beside them, which sweeps show."""
    from fedadb.storage.run_directory import ROUNDS
    from fedadb.storage.searches import read_searches

    tried = [directory / t.run for s in read_searches(directory).values() for t in s.trials]
    return list(dict.fromkeys([*runs, *(run for run in tried if (run / ROUNDS).exists())]))


def analyse_runs(directories: Sequence[Path], names: Sequence[str]) -> None:
    """Analyse the runs on each dataset side by side."""
    from fedadb.analysis.inputs import Options
    from fedadb.analysis.results import run_analyses
    from fedadb.experiment.stored import read_run

    runs = [read_run(directory, show_progress) for directory in directories]
    for dataset in dict.fromkeys(run.experiment.dataset for run in runs):
        same_data = [run for run in runs if run.experiment.dataset == dataset]
        out = same_data[0].directory / ANALYSIS  # where the page looks for results
        options = Options(progress=show_progress)
        show_numbers(run_analyses(same_data, names, out, options, show_message))
        show_message(f"Figures and numbers: {out}")


def list_runs(experiments: "Sequence[Experiment]", directory: Path, measure: bool) -> None:
    """Show each run, how many of its rounds are done, and how long the others take."""
    from rich import box
    from rich.table import Table

    from fedadb.cli.estimate import MeasuredCosts
    from fedadb.experiment.identity import run_name
    from fedadb.experiment.run import done_rounds

    costs = MeasuredCosts()
    times: list[float | str] = []
    table = Table("run", "rounds", "done", "time", box=box.SIMPLE)
    with show_progress("measuring" if measure else "listing", len(experiments), "runs") as advance:
        for e in experiments:
            done = done_rounds(directory / run_name(e))
            times.append(time_left(e, done, costs, measure))
            table.add_row(run_name(e), str(e.rounds), str(done), _duration(times[-1]))
            advance(1)
    console.print(table)
    seconds, unknown = [t for t in times if isinstance(t, float)], times.count("unknown")
    about = "nothing left that can run"
    if seconds:
        about = f"about {_duration(sum(seconds))} on this machine"
        about += f", without {unknown} of unknown time" if unknown else ""
    elif unknown:
        about = "of unknown time"
    show_message(f"Runs: {len(experiments)}, {about}, in {directory}")
    if unknown:
        show_message("--measure measures how long a round takes")
    absent = {str(e.dataset) for e, t in zip(experiments, times, strict=True) if t == "no data"}
    for dataset in sorted(absent):
        show_message(f"{dataset} is not on this machine: `fedadb data fetch {dataset}`")


def time_left(
    e: "Experiment", done: int, costs: "MeasuredCosts", measure: bool
) -> float | Literal["done", "no data", "unknown"]:
    """The seconds that the rounds after `done` take, or why there is no estimate."""
    from fedadb import datasets

    if done == e.rounds:
        return "done"
    if not datasets.present(e.dataset):
        return "no data"
    if measure and not costs.known(e):
        costs.measure(e, show_progress)
    return costs.round_seconds(e) * (e.rounds - done) if costs.known(e) else "unknown"


def _duration(time: float | str) -> str:
    """Seconds as days or hours, minutes and seconds; a word as it is."""
    if isinstance(time, str):
        return time
    days = time / 86_400
    return f"{days:.1f} days" if days >= 1 else str(timedelta(seconds=round(time)))
