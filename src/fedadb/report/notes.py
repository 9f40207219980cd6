"""What must be said beside numbers: over how many seeds, of which rounds, finished or not."""

from fedadb.experiment.presets import scenario
from fedadb.report import paper
from fedadb.report.groups import Board, short


def notes(board: Board) -> list[str]:
    said = []
    seeds = {len(runs) for runs in board.at.values()}
    if seeds == {1}:
        said.append("One seed.")
    elif len(seeds) == 1:
        said.append(f"Mean ± population standard deviation over {seeds.pop()} seeds.")
    else:
        said.append(
            f"Mean ± population standard deviation over {min(seeds)} to {max(seeds)} seeds."
        )
    unfinished = sum(len(run.rounds) < run.total for at in board.at.values() for run in at)
    if unfinished:
        said.append(f"{unfinished} of the runs are not finished.")
    lost = sum(len(r.get("lost", ())) for at in board.at.values() for run in at for r in run.rounds)
    if lost:
        said.append(f"{lost} replies of sites were lost; rounds.jsonl has the reasons.")
    said += _unlabelled(board)
    return said + [f"{c}: {less}." for c in board.columns if (less := shortened(board, c))]


def _unlabelled(board: Board) -> list[str]:
    """What else differs between columns of the same data: labels only tell them apart."""
    first = {c: next(iter(board.cells(c).values()))[0].settings for c in board.columns}
    said = []
    for column, settings in first.items():
        others = [s for s in first.values() if s["dataset"] == settings["dataset"]]
        differ = [
            short(key, value)
            for key, value in settings.items()
            if not key.startswith("algorithm.") and any(s.get(key) != value for s in others)
        ]
        sizes = ("K=", "ρ=") if scenario(settings) else ()
        left = [word for word in differ if word not in column and not word.startswith(sizes)]
        if left:
            said.append(f"{column}: also {', '.join(left)}.")
    return said


def shortened(board: Board, column: str) -> str:
    """What there is to say where runs have another number of rounds than the paper's."""
    run = next(iter(board.cells(column).values()))[0]
    full = paper.settings()["rounds"].get(run.experiment["dataset"])
    return (
        f"{run.total} rounds, where the paper has {full}" if full not in (None, run.total) else ""
    )
