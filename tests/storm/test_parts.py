"""`make storm`, the commands and the page name the same parts."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from storm import __main__ as commands
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


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_command_gives_its_part_what_it_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        commands, "carry_out", lambda *values, **options: given.append((values, options))
    )
    getattr(commands, name)(seed=3)
    ((repeated, part, seed, _), options) = given[0]
    assert (repeated, seed) == (name, 3)
    inspect.signature(part).bind(None, scratch=Path(), **options)
