"""What must be said beside numbers: over how many seeds, of which rounds, finished or not."""

from fedadb.report import paper
from fedadb.report.groups import Board


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
    return said + [f"{c}: {short}." for c in board.columns if (short := shortened(board, c))]


def shortened(board: Board, column: str) -> str:
    """What there is to say where runs have another number of rounds than the paper's."""
    run = next(iter(board.cells(column).values()))[0]
    full = paper.settings()["rounds"].get(run.experiment["dataset"])
    return (
        f"{run.total} rounds, where the paper has {full}" if full not in (None, run.total) else ""
    )
