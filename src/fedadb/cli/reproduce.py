"""The command that makes the paper's tables and figures."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedadb.analysis import NAMES
from fedadb.cli.analyse import show_numbers
from fedadb.cli.many import train_all
from fedadb.cli.terminal import SETTINGS, TENSORBOARD, look_beside, out, tell, show_progress
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import ANALYSIS

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

STUDIES = Path(__file__).parent.parent / "studies"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, convergence, ablation, beta, hessian, pacs, hyperparameters, cag, "
            "trajectories, landscape, embedding, privacy, or the path of a study in TOML."
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,…", help="A part of it: dataset=organamnist, seed=0."),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(help="A share of the rounds, with lr_decay to match: 0.1 is a tenth."),
    ] = 1.0,
    settings: SETTINGS = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, and how long it may take.")
    ] = False,
    directory: Annotated[
        Path | None, typer.Option("--out", help="Where results go; by default runs/NAME.")
    ] = None,
    tensorboard: TENSORBOARD = False,
) -> None:
    """Run the experiments behind a table or figure of the paper, and report on them.

    What is done is not done again, and runs that two studies share are shared if --out is the same.
    """
    from fedadb.experiment.study import read_study, select
    from fedadb.report.groups import arrange
    from fedadb.report.runs import read
    from fedadb.report.write import write_report

    if not 0 < scale <= 1:
        raise BadInput(f"--scale {scale:g}: must be above 0 and at most 1; 0.1 is a tenth")
    path = find(name)
    look_beside(path)
    study = read_study(path, settings or [], scale)
    for analysis in study.analyses:
        if analysis not in NAMES:
            raise BadInput(f"{path}: analyse has {analysis!r}; there is {', '.join(NAMES)}")
    experiments = select(study.experiments, only or [])
    place = directory or Path("runs") / path.stem
    if dry_run:
        plan(experiments, place)
        return
    short = "" if scale == 1 else f", {scale:g} of the paper's rounds"
    short += f", {' and '.join(only)}" if only else ""
    report = place / ("report" if directory is None else f"report-{path.stem}")

    title = f"{study.title}{short}"

    def then(done: list[Path]) -> None:
        if study.analyses:
            look_into(done, study.analyses)
            write_report(arrange([read(run) for run in done]), title, report)  # with them on it

    train_all(experiments, place, report, title, tensorboard, then)


def find(name: str) -> Path:
    """The study of that name, or the file."""
    if name.endswith(".toml"):
        return Path(name)
    files = sorted(STUDIES.glob("*.toml"))
    known = {path.stem: path for path in files if "[[grid]]" in path.read_text(encoding="utf-8")}
    if name not in known:
        raise BadInput(f"reproduce {name}: is not known; there is {', '.join(known)}")
    return known[name]


def look_into(runs: Sequence[Path], names: Sequence[str]) -> None:
    """The analyses of a study, of the runs on each dataset side by side."""
    from fedadb.analysis.subject import load
    from fedadb.analysis.write import analyse

    subjects = [load(run, show_progress=show_progress) for run in runs]
    for dataset in dict.fromkeys(subject.experiment.dataset for subject in subjects):
        those = [subject for subject in subjects if subject.experiment.dataset == dataset]
        place = those[0].directory / ANALYSIS  # where the page looks for it
        show_numbers(analyse(those, names, place, tell))
        tell(f"Figures and numbers: {place}")


def plan(experiments: "Sequence[Experiment]", place: Path) -> None:
    """Show each run, how far it is, and how long the rest may take."""
    from rich import box
    from rich.table import Table

    from fedadb.experiment.directory import run_name
    from fedadb.cli.estimate import Estimator
    from fedadb.experiment.run import done_rounds

    table = Table("run", "rounds", "done", "about", box=box.SIMPLE)
    estimator, total, lacking = Estimator(), 0.0, set()
    with show_progress("measuring", len(experiments), "runs") as advance:
        for e in experiments:
            done = done_rounds(place / run_name(e))
            left, about = e.rounds - done, "done"
            if left:
                seconds = estimator.seconds(e)
                total += (seconds or 0) * left
                about = "no data" if seconds is None else _time(seconds * left)
                lacking |= {e.dataset} if seconds is None else set()
            table.add_row(run_name(e), str(e.rounds), str(done), about)
            advance(1)
    out.print(table)
    about = f"about {_time(total)} on this machine" if total else "nothing left that can run"
    tell(f"Runs: {len(experiments)}, {about}, in {place}")
    for dataset in sorted(lacking):
        tell(f"{dataset} is not here and not counted: `fedadb data fetch {dataset}`")


def _time(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:.1f} days" if days >= 1 else str(timedelta(seconds=round(seconds)))
