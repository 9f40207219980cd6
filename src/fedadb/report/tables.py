"""What the tables say: accuracy, what is left of it in the end, and on each domain."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from fedadb.experiment.presets import scenario
from fedadb.report import paper
from fedadb.report.convergence import convergence
from fedadb.report.formats import NOTHING, RUNNING, Entry, Table
from fedadb.report.groups import Board
from fedadb.report.notes import notes
from fedadb.report.runs import Run
from fedadb.report.statistics import (
    Spread,
    best_rounds,
    forgetting,
    last_rounds,
    over_seeds,
)
from fedadb.storage.run_directory import PARTITION


def accuracy(board: Board) -> Table:
    """The best five rounds of each seed, over seeds, in per cent; the paper's value beside ours."""
    scores = {
        place: over_seeds([best_rounds(run.accuracy) for run in at])
        for place, at in board.at.items()
    }
    ended = {place: score for place, score in scores.items() if finished(board.at[place])}
    best = {
        c: max((score.mean for (_, column), score in ended.items() if column == c), default=None)
        for c in board.columns
    }
    averages = _averages(board)
    rows = []
    for row in board.rows:
        entries = [Entry(row)]
        for column in board.columns:
            if (score := scores.get((row, column))) is None:
                entries.append(Entry(NOTHING))
            else:
                at = board.at[row, column]
                beside, done = _published(paper.published(at[0])), finished(at)
                text = _spread(score) if done else f"{_spread(score)} {RUNNING}"
                entries.append(Entry(text, done and score.mean == best[column], beside))
        entries += [_average(board, row, columns, scores) for columns in averages.values()]
        rows.append(entries)
    header = ["", *board.columns, *averages]
    title = "Test accuracy (%): the mean of the best five rounds"
    return Table("accuracy", title, header, rows, notes(board))


def finished(runs: Sequence[Run]) -> bool:
    return all(len(run.rounds) == run.total for run in runs)


def _averages(board: Board) -> dict[str, list[str]]:
    """Which columns have a mean: those of a scenario, if all differ in dataset and α alone."""
    groups: dict[str, list[str]] = {}
    for column in board.columns:
        _, *parts = column.split(", ")
        name = scenario(next(iter(board.cells(column).values()))[0].settings)
        if any(part != name and not part.startswith("α=") for part in parts):
            return {}
        groups.setdefault(f"average, {name}" if name in parts else "average", []).append(column)
    return {name: columns for name, columns in groups.items() if len(columns) > 1}


def _average(
    board: Board, row: str, columns: Sequence[str], scores: Mapping[tuple[str, str], Spread]
) -> Entry:
    found = [scores[row, column].mean for column in columns if (row, column) in scores]
    if len(found) < len(columns):
        return Entry(NOTHING)
    runs = [board.at[row, column][0] for column in columns]
    whole = len(runs) == 10 and all(paper.published(run) for run in runs)
    beside = _published(paper.average(runs[0])) if whole else ""
    return Entry(f"{100 * fmean(found):.2f}", paper=beside)


def summary(board: Board) -> Table:
    """Numbers that the choice of the best rounds does not flatter, a line a method and setting."""
    rows = [
        [Entry(column), Entry(row), *_measures(runs)]
        for column in board.columns
        for row, runs in board.cells(column).items()
    ]
    header = ["setting", "method", "best 5", "last", "last 10", "forgetting"]
    header += ["rounds", "seeds", "s/round", "kB down/up"]
    title = "Accuracy (%) of the best five rounds, the last and the last ten, and forgetting"
    return Table("summary", title, header, rows, notes(board))


def _measures(runs: Sequence[Run]) -> list[Entry]:
    def over(measure: Callable[[Run], float]) -> str:
        return _spread(over_seeds([measure(run) for run in runs]))

    done, total = min(len(run.rounds) for run in runs), runs[0].total
    lost = NOTHING
    if done > 1:
        lost = over(lambda run: forgetting([r["class_accuracy"] for r in run.rounds]))
    return [
        Entry(
            over(lambda run: best_rounds(run.accuracy)), paper=_published(paper.published(runs[0]))
        ),
        Entry(over(lambda run: run.accuracy[-1])),
        Entry(over(lambda run: last_rounds(run.accuracy))),
        Entry(lost),
        Entry(str(done) if done == total else f"{done}/{total}"),
        Entry(str(len(runs))),
        Entry(f"{fmean(r['seconds'] for run in runs for r in run.rounds):.2f}"),
        Entry(_traffic(runs)),
    ]


def _traffic(runs: Sequence[Run]) -> str:
    """What a client receives and sends in a round; records of earlier versions do not say."""
    rounds = [r for run in runs for r in run.rounds if "bytes_down" in r]
    if not rounds:
        return NOTHING
    return "/".join(
        f"{fmean(r[key] for r in rounds) / 1000:.0f}" for key in ("bytes_down", "bytes_up")
    )


def _published(known: paper.Published | None) -> str:
    if known is None:
        return ""
    beside = "" if known.deviation is None else f" ± {known.deviation:.2f}"
    return f"{known.mean:.2f}{beside}"


def domains(board: Board) -> Table | None:
    """The accuracy on each domain in the five best rounds, where data have domains."""
    rows: list[list[Entry]] = []
    names: list[str] = []
    for column in board.columns:
        for row, runs in board.cells(column).items():
            if "domain_accuracy" not in runs[0].rounds[0]:
                continue
            scores = [_known(values) for values in zip(*map(_by_domain, runs), strict=True)]
            named = runs[0].beside(PARTITION).get("domains") or range(len(scores))
            names = names or [str(name) for name in named]
            if len(scores) == len(names):  # data with other domains have no place here
                means = [score.mean for score in scores if score]
                entries = [Entry(_spread(score)) if score else Entry(NOTHING) for score in scores]
                mean = Entry(f"{100 * fmean(means):.2f}") if means else Entry(NOTHING)
                rows.append([Entry(column), Entry(row), *entries, mean])
    if not rows:
        return None
    header = ["setting", "method", *names, "mean"]
    return Table("domains", "Accuracy on each domain (%)", header, rows, notes(board))


def _known(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return over_seeds(known) if known else None


def _by_domain(run: Run) -> list[float | None]:
    best = sorted(run.rounds, key=lambda record: float(record["accuracy"]))[-5:]
    by_domain = zip(*(r["domain_accuracy"] for r in best), strict=True)
    known = [[value for value in values if value is not None] for values in by_domain]
    return [fmean(values) if values else None for values in known]  # a site may have been away


def everything(board: Board) -> list[Table]:
    """All tables that there is something for."""
    made = [accuracy(board), summary(board), convergence(board), domains(board)]
    return [table for table in made if table]


def _spread(score: Spread) -> str:
    beside = f" ± {100 * score.deviation:.2f}" if score.seeds > 1 else ""
    return f"{100 * score.mean:.2f}{beside}"
