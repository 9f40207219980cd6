"""What the tables say: accuracy, what is left of it in the end, and rounds to a target."""

from collections.abc import Callable, Sequence
from statistics import fmean

from fedadb.core.files import PARTITION
from fedadb.report import paper
from fedadb.report.formats import NOTHING, Entry, Table
from fedadb.report.groups import Board
from fedadb.report.runs import Run
from fedadb.report.statistics import (
    Ratios,
    Spread,
    best_rounds,
    forgetting,
    last_rounds,
    mean_curve,
    over_seeds,
    ratios,
    rounds_to,
    targets,
)


def accuracy(board: Board) -> Table:
    """The best five rounds of each seed, over seeds, in per cent; the paper's value beside ours."""
    scores = {place: over_seeds([best_rounds(r.accuracy) for r in at]) for place, at in
              board.at.items()}  # fmt: skip
    best = {c: max(s.mean for (_, column), s in scores.items() if column == c)
            for c in board.columns}  # fmt: skip
    averaged = len(board.columns) > 1
    rows = []
    for row in board.rows:
        entries = [Entry(row)]
        found = [scores.get((row, column)) for column in board.columns]
        for column, score in zip(board.columns, found, strict=True):
            if score is None:
                entries.append(Entry(NOTHING))
                continue
            beside = _published(board.at[row, column][0])
            entries.append(Entry(_spread(score), score.mean == best[column], beside))
        if averaged:
            whole = [score.mean for score in found if score]
            mean = 100 * sum(whole) / len(whole) if len(whole) == len(found) else None
            entries.append(Entry(NOTHING if mean is None else f"{mean:.2f}"))
        rows.append(entries)
    header = ["", *board.columns, *(["average"] if averaged else [])]
    title = "Test accuracy (%): the mean of the best five rounds"
    return Table("accuracy", title, header, rows, _notes(board))


def summary(board: Board) -> Table:
    """Numbers that the choice of the best rounds does not flatter, a line a method and setting."""
    rows = [
        [Entry(column), Entry(row), *_measures(runs)]
        for column in board.columns
        for row, runs in board.cells(column).items()
    ]
    header = ["setting", "method", "best 5", "last", "last 10", "forgetting"]
    header += ["rounds", "seeds", "s/round"]
    title = "Accuracy (%) of the best five rounds, the last and the last ten, and forgetting"
    return Table("summary", title, header, rows, _notes(board))


def _measures(runs: Sequence[Run]) -> list[Entry]:
    def over(measure: Callable[[Run], float]) -> str:
        return _spread(over_seeds([measure(run) for run in runs]))

    done, total = min(len(run.rounds) for run in runs), runs[0].total
    lost = NOTHING
    if done > 1:
        lost = over(lambda run: forgetting([r["class_accuracy"] for r in run.rounds]))
    return [
        Entry(over(lambda run: best_rounds(run.accuracy)), paper=_published(runs[0])),
        Entry(over(lambda run: run.accuracy[-1])),
        Entry(over(lambda run: last_rounds(run.accuracy))),
        Entry(lost),
        Entry(str(done) if done == total else f"{done}/{total}"),
        Entry(str(len(runs))),
        Entry(f"{fmean(r['seconds'] for run in runs for r in run.rounds):.2f}"),
    ]


def _published(run: Run) -> str:
    known = paper.published(run)
    if known is None:
        return ""
    beside = "" if known.deviation is None else f" ± {known.deviation:.2f}"
    return f"{known.mean:.2f}{beside}"


def domains(board: Board) -> Table | None:
    """The accuracy on each domain in the five best rounds, where data have domains."""
    rows, names = [], []
    for column in board.columns:
        for row, runs in board.cells(column).items():
            if "domain_accuracy" in runs[0].rounds[0]:
                names = runs[0].beside(PARTITION).get("domains", [])
                scores = [over_seeds(values) for values in zip(*map(_by_domain, runs), strict=True)]
                mean = fmean(score.mean for score in scores)
                entries = [Entry(_spread(score)) for score in scores]
                rows.append([Entry(column), Entry(row), *entries, Entry(f"{100 * mean:.2f}")])
    if not rows:
        return None
    header = ["setting", "method", *names, "mean"]
    return Table("domains", "Accuracy on each domain (%)", header, rows, _notes(board))


def _by_domain(run: Run) -> list[float]:
    best = sorted(run.rounds, key=lambda record: float(record["accuracy"]))[-5:]
    return [fmean(values) for values in zip(*(r["domain_accuracy"] for r in best), strict=True)]


def everything(board: Board) -> list[Table]:
    """All tables that there is something for."""
    made = [accuracy(board), summary(board), convergence(board), domains(board)]
    return [table for table in made if table]


def convergence(board: Board) -> Table:
    """Rounds until the smoothed mean curve reaches a share of the best accuracy of any run."""
    against = [row for row in board.rows if row.partition(",")[0] == "FedADB"]
    base = against[0] if len(against) == 1 else None
    rows: list[list[Entry]] = []
    needed: dict[str, list[int | None]] = {row: [] for row in board.rows}
    for column in board.columns:
        cells = board.cells(column)
        goals = targets(max(max(run.accuracy) for runs in cells.values() for run in runs))
        curves = {row: mean_curve([run.accuracy for run in runs]) for row, runs in cells.items()}
        published = {row: paper.rounds_to_targets(runs[0]) for row, runs in cells.items()}
        for i, goal in enumerate(goals):
            reached = {row: rounds_to(curve, goal) for row, curve in curves.items()}
            fewest = min((n for n in reached.values() if n), default=None)
            entries = [Entry(column), Entry(f"{100 * goal:.0f} %")]
            for row in board.rows:
                if row not in reached:
                    entries.append(Entry(""))
                    continue
                n, beside = reached[row], published[row]
                needed[row].append(n)
                other = reached.get(base) if base else None
                times = f" ({n / other:.1f}×)" if n and other else ""
                says = (
                    f"{beside[i]['rounds'] or NOTHING} to {beside[i]['target']} %" if beside else ""
                )
                entries.append(Entry(f"{n or NOTHING}{times}", n is not None and n == fewest, says))
            rows.append(entries)
    if base:
        found = {row: ratios(needed[row], needed[base]) for row in board.rows
                 if len(needed[row]) == len(needed[base])}  # fmt: skip
        rows += _average_rows(board.rows, found)
    notes = [
        "Targets are 45, 65 and 85 % of the best accuracy of any run in the same setting; curves "
        "are means over seeds, smoothed by EWMA 0.2.",
        *([f"In brackets: rounds over those of {base}. Averages leave out what was not reached, "
           "which flatters methods that fail."] if base else []),
        *_notes(board),
    ]  # fmt: skip
    return Table("convergence", "Rounds to a target accuracy", ["setting", "target", *board.rows],
                 rows, notes)  # fmt: skip


def _average_rows(rows: Sequence[str], found: dict[str, Ratios]) -> list[list[Entry]]:
    def line(name: str, tell: Callable[[Ratios], str]) -> list[Entry]:
        told = [Entry(tell(found[row]) if row in found else "") for row in rows]
        return [Entry(name), Entry(""), *told]

    return [
        line("mean ratio", lambda r: NOTHING if r.mean is None else f"{r.mean:.1f}×"),
        line("median ratio", lambda r: NOTHING if r.median is None else f"{r.median:.1f}×"),
        line("targets not reached", lambda r: str(r.failed)),
    ]


def _spread(score: Spread) -> str:
    beside = f" ± {100 * score.deviation:.2f}" if score.seeds > 1 else ""
    return f"{100 * score.mean:.2f}{beside}"


def _notes(board: Board) -> list[str]:
    notes = []
    seeds = {len(runs) for runs in board.at.values()}
    if seeds == {1}:
        notes.append("One seed.")
    elif len(seeds) == 1:
        notes.append(f"Mean ± population standard deviation over {seeds.pop()} seeds.")
    else:
        notes.append(
            f"Mean ± population standard deviation over {min(seeds)} to {max(seeds)} seeds."
        )
    unfinished = sum(len(run.rounds) < run.total for at in board.at.values() for run in at)
    if unfinished:
        notes.append(f"{unfinished} of the runs are not finished.")
    for column in board.columns:
        run = next(iter(board.cells(column).values()))[0]
        full = paper.settings()["rounds"].get(run.experiment["dataset"])
        if full and run.total != full:
            notes.append(f"{column}: {run.total} rounds, where the paper has {full}.")
    return notes
