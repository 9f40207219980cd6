"""Tables in Markdown."""

from collections.abc import Sequence
from statistics import fmean, pstdev

NOTHING = "-"  # in a cell for which there is no number


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def mean_and_deviation(values: Sequence[float]) -> str:
    """Over seeds; the deviation is that of the population, as in the paper."""
    return f"{fmean(values):.1f} ± {pstdev(values):.1f}"


def signed(points: float) -> str:
    """A difference with its sign, which is a minus and no hyphen."""
    return f"{points:+.1f}".replace("-", "−")
