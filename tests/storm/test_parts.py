"""`make storm`, the commands and the page name the same parts."""

import re
from pathlib import Path

from storm.__main__ import app

ROOT = Path(__file__).parents[2]
PARTS = {command.callback.__name__ for command in app.registered_commands if command.callback}


def test_make_storm_runs_every_part() -> None:
    listed = re.search(r"for part in ([a-z ]+);", (ROOT / "Makefile").read_text())
    assert listed
    assert set(listed[1].split()) == PARTS


def test_the_page_names_every_part() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert set(re.findall(r"python -m storm (\w+)", page)) == PARTS
