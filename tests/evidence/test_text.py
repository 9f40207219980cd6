"""The text of the results states what the rows say."""

import re
from collections.abc import Callable, Iterator

import pytest

from evidence.pages import DOCS
from tests.evidence.text import ablation, analyses, better, cifar10, organamnist, readings, readme

STATED: dict[str, Callable[[], Iterator[str]]] = {
    "README.md": readme.stated,
    "docs/results/organamnist.md": organamnist.stated,
    "docs/results/readings.md": readings.stated,
    "docs/results/cifar10.md": cifar10.stated,
    "docs/results/analyses.md": analyses.stated,
    "docs/results/ablation.md": ablation.stated,
    "docs/results/better.md": better.stated,
}


@pytest.mark.parametrize("page", STATED)
def test_the_text_states_what_the_rows_say(page: str) -> None:
    text = " ".join((DOCS.parent / page).read_text(encoding="utf-8").split())
    assert [one for one in STATED[page]() if not states(text, one)] == []


def states(text: str, statement: str) -> bool:
    """Whether the text has the statement, whose first and last numbers are whole ones there."""
    return re.search(rf"(?<![\d.−]){re.escape(statement)}(?!\.?\d)", text) is not None


def test_a_part_of_a_number_is_not_the_number() -> None:
    assert states("has 19 % and 7.", "19 % and 7")
    assert not states("has 19 % and 7.", "9 % and 7")
    assert not states("has 19 % and 7.5", "19 % and 7")
