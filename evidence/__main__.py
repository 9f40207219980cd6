"""The commands of the published results."""

import argparse
from pathlib import Path

from evidence.pages import PAGES, with_tables
from evidence.rows import row_of, write_rows
from fedadb.report.recorded_runs import collect_runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evidence")
    commands = parser.add_subparsers(dest="command", required=True)
    collect = commands.add_parser("collect", help="write one row per run to a CSV file")
    collect.add_argument("runs", nargs="+", type=Path)
    collect.add_argument("--to", required=True, type=Path)
    collect.add_argument(
        "--diverged",
        action="store_true",
        help="also runs that did not finish, because their weights were no longer finite",
    )
    commands.add_parser("write", help="write the tables of the docs, from the CSV files")
    given = parser.parse_args()
    if given.command == "collect":
        runs = [run for run in collect_runs(given.runs).runs if run.finished or given.diverged]
        write_rows(map(row_of, runs), given.to)
        print(f"{len(runs)} runs: {given.to}")
        return
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
