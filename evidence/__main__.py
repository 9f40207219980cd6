"""The commands of the published results."""

import argparse
import sys
from functools import partial
from pathlib import Path

from evidence.analyses import analyse_runs
from evidence.figures import write_figures
from evidence.pages import DOCS, PAGES, with_tables
from evidence.queue import add_run, in_order, missing, run_queue
from evidence.single_rounds import write_rounds
from fedadb.cli.reproduce import find_study
from fedadb.core.errors import BadInput, Fault
from fedadb.experiment.identity import run_name
from fedadb.experiment.study import read_study, select
from fedadb.interruption import exit_code, interrupted_by_sigterm
from fedadb.report.recorded_runs import CollectedRuns, collect_runs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence")
    commands = parser.add_subparsers(dest="command", required=True)
    collect = commands.add_parser("collect", help="add a row of each run to a CSV file")
    collect.add_argument("runs", nargs="+", type=Path)
    collect.add_argument("--to", required=True, type=Path)
    collect.add_argument(
        "--diverged",
        action="store_true",
        help="also runs that did not finish, because their weights were no longer finite",
    )
    queue = commands.add_parser("run", help="run what a CSV file does not have yet of a study")
    queue.add_argument("study", help="a study in TOML, or the name of one of the paper's")
    queue.add_argument("--to", required=True, type=Path, help="the CSV file")
    queue.add_argument("--out", required=True, type=Path, help="a directory for the runs")
    queue.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    queue.add_argument("--only", action="append", metavar="KEY=VALUE,…", help="select a part")
    queue.add_argument(
        "--list",
        action="store_true",
        help="list what would run, in order; measures unknown costs",
    )
    analyse = commands.add_parser("analyse", help="analyse finished runs of FedAvg and FedADB")
    analyse.add_argument("runs", nargs="+", type=Path, help="of every seed, one of each or more")
    analyse.add_argument("--to", required=True, type=Path, help="the CSV file")
    single = commands.add_parser(
        "rounds", help="write one row per round of runs, also of unfinished ones"
    )
    single.add_argument("runs", nargs="+", type=Path)
    single.add_argument("--to", required=True, type=Path, help="the CSV file")
    commands.add_parser(
        "write", help="write the tables and figures of the docs, from the CSV files"
    )
    given = parser.parse_args()
    try:
        return COMMANDS[given.command](given)
    except (BadInput, Fault) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, BadInput) else 1


def collect_rows(given: argparse.Namespace) -> int:
    collected = collect_runs(given.runs)
    runs = [run for run in collected.runs if run.finished or given.diverged]
    for run in runs:
        add_run(run, given.to)
    print(f"{len(runs)} runs: {given.to}")
    return complain(collected)


def run_study(given: argparse.Namespace) -> int:
    study = read_study(find_study(given.study))
    experiments = select(study.experiments, given.only or [])
    if given.list:
        for e in in_order(missing(experiments, given.to), given.out):
            print(run_name(e))
        return 0
    show = partial(print, flush=True)
    try:
        with interrupted_by_sigterm():
            failed = run_queue(experiments, given.to, given.out, show, 60 * given.minutes)
    except KeyboardInterrupt as error:
        print("interrupted; the same command resumes")
        return exit_code(error)
    return 1 if failed else 0


def write_pages(given: argparse.Namespace) -> int:
    for figure in write_figures(DOCS / "results"):
        print(figure)
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page)
    return 0


def analyse(given: argparse.Namespace) -> int:
    print(f"{analyse_runs(given.runs, given.to)} rows: {given.to}")
    return 0


def collect_rounds(given: argparse.Namespace) -> int:
    collected = collect_runs(given.runs)
    print(f"{write_rounds(collected.runs, given.to)} rounds: {given.to}")
    return complain(collected)


def complain(collected: CollectedRuns) -> int:
    """Print what is wrong with runs; returns the exit code."""
    for line in (*collected.warnings, *collected.errors):
        print(line, file=sys.stderr)
    return 1 if collected.errors else 0


COMMANDS = {
    "collect": collect_rows,
    "run": run_study,
    "analyse": analyse,
    "rounds": collect_rounds,
    "write": write_pages,
}


if __name__ == "__main__":
    sys.exit(main())
