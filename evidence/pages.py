"""The tables of the docs that are made from rows: each stands between two comments of its page."""

import re
from collections.abc import Callable
from pathlib import Path

from evidence import compression, private, robustness

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "robustness.md", DOCS / "privacy.md"]
TABLES: dict[str, Callable[[Path], str]] = {
    **robustness.TABLES,
    **compression.TABLES,
    **private.TABLES,
}
PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of the table -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The text of a page with its tables made anew."""

    def made(place: re.Match[str]) -> str:
        return f"{place[1]}{TABLES[place[2]](DOCS / 'results')}{place[3]}"

    return PLACE.sub(made, text)
