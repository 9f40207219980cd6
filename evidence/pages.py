"""The tables of the docs that are made from rows: each stands between two comments of its page."""

import re
from collections.abc import Callable
from pathlib import Path

from evidence import (
    ablation,
    better,
    cifar10,
    compression,
    figures,
    organamnist,
    private,
    readings,
    robustness,
)

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = ("organamnist", "readings", "cifar10", "ablation", "better")
PAGES = [
    DOCS / "robustness.md",
    DOCS / "privacy.md",
    *(DOCS / "results" / f"{name}.md" for name in RESULTS),
]
TABLES: dict[str, Callable[[Path], str]] = {
    **robustness.TABLES,
    **compression.TABLES,
    **private.TABLES,
    **organamnist.TABLES,
    **readings.TABLES,
    **cifar10.TABLES,
    **ablation.TABLES,
    **better.TABLES,
    **figures.TABLES,
}
PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of the table -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The text of a page with its tables made anew."""

    def made(place: re.Match[str]) -> str:
        return f"{place[1]}{TABLES[place[2]](DOCS / 'results')}{place[3]}"

    return PLACE.sub(made, text)
