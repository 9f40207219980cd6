"""Rounds until methods reach shares of the best accuracy: who is first, and by how much."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fedadb.report import paper
from fedadb.report.formats import NOTHING, RUNNING, Entry, Table
from fedadb.report.groups import Board
from fedadb.report.notes import notes
from fedadb.report.runs import Run
from fedadb.report.statistics import Ratios, mean_curve, ratios, rounds_to, targets


class Race(NamedTuple):
    goals: list[float]  # shares of the best accuracy that any run of the setting had in any round
    reached: dict[str, list[int | None]]  # by method, for each goal the round, if there was one
    running: set[str]  # methods whose runs are not finished: what is not reached may yet be


def race(cells: Mapping[str, list[Run]]) -> Race:
    """By the mean curve over seeds, smoothed."""
    goals = targets(max(max(run.accuracy) for runs in cells.values() for run in runs))
    reached = {}
    for method, runs in cells.items():
        curve = mean_curve([run.accuracy for run in runs])
        reached[method] = [rounds_to(curve, goal) for goal in goals]
    running = {m for m, runs in cells.items() if any(len(r.rounds) < r.total for r in runs)}
    return Race(goals, reached, running)


def convergence(board: Board) -> Table:
    """Rounds until the smoothed mean curve reaches a share of the best accuracy of any run."""
    against = [row for row in board.rows if row.partition(",")[0] == "FedADB"]
    base = against[0] if len(against) == 1 else None
    rows: list[list[Entry]] = []
    needed: dict[str, dict[tuple[str, int], int | None]] = {row: {} for row in board.rows}
    for column in board.columns:
        cells = board.cells(column)
        goals, reached, running = race(cells)
        published = {row: paper.rounds_to_targets(runs[0]) for row, runs in cells.items()}
        for i, goal in enumerate(goals):
            fewest = min((n[i] or math.inf for n in reached.values()), default=math.inf)
            entries = [Entry(column), Entry(f"{100 * goal:.0f} %")]
            for row in board.rows:
                if row not in reached:
                    entries.append(Entry(""))
                    continue
                n, other = reached[row][i], reached[base][i] if base in reached else None
                if n or row not in running:
                    needed[row][column, i] = n
                never = RUNNING if row in running else NOTHING
                times = f" ({n / other:.1f}×)" if n and other else ""
                says = ""
                if published[row]:
                    known = published[row][i]
                    says = f"{known['rounds'] or NOTHING} to {known['target']} %"
                entries.append(Entry(f"{n or never}{times}", n == fewest, says))
            rows.append(entries)
    if base:
        found = {}
        for row, of_row in needed.items():
            both = [place for place in of_row if place in needed[base]]
            found[row] = ratios([of_row[p] for p in both], [needed[base][p] for p in both])
        rows += _average_rows(board.rows, found)
    said = [
        "Targets are 45, 65 and 85 % of the best accuracy of any run in the same setting; curves "
        "are means over seeds, smoothed by EWMA 0.2."
    ]
    if base:
        said.append(
            f"In brackets: rounds over those of {base}. Averages leave out what was not reached, "
            "which flatters methods that fail."
        )
    header = ["setting", "target", *board.rows]
    said += notes(board)
    return Table("convergence", "Rounds to a target accuracy", header, rows, said)


def _average_rows(rows: Sequence[str], found: dict[str, Ratios]) -> list[list[Entry]]:
    def line(name: str, tell: Callable[[Ratios], str]) -> list[Entry]:
        told = [Entry(tell(found[row]) if row in found else "") for row in rows]
        return [Entry(name), Entry(""), *told]

    return [
        line("mean ratio", lambda r: NOTHING if r.mean is None else f"{r.mean:.1f}×"),
        line("median ratio", lambda r: NOTHING if r.median is None else f"{r.median:.1f}×"),
        line("targets not reached", lambda r: str(r.failed)),
    ]
