"""The tables of the docs that are made from rows: each stands between two comments of its page."""

import re
from collections.abc import Callable
from pathlib import Path

from evidence import (
    ablation,
    analyses,
    better,
    cifar10,
    compression,
    figures,
    organamnist,
    private,
    rates,
    readings,
    robustness,
    single_rounds,
    sweeps,
)

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = ("organamnist", "readings", "cifar10", "ablation", "better", "analyses")
PAGES = [
    DOCS.parent / "README.md",
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
    **rates.TABLES,
    **ablation.TABLES,
    **sweeps.TABLES,
    **better.TABLES,
    **analyses.TABLES,
    **single_rounds.TABLES,
    **figures.TABLES,
}
NOTHING_DONE = re.compile(r"^0 of \d+ runs are done\.\n", re.MULTILINE)
PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of the table -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The text of a page with its tables made anew; a table without a number is left out."""

    def made(place: re.Match[str]) -> str:
        table = TABLES[place[2]](DOCS / "results")
        nothing = NOTHING_DONE.search(table)
        return f"{place[1]}{nothing[0] if nothing else table}{place[3]}"

    return PLACE.sub(made, text)
