"""The text of the results states what the rows say."""

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
    assert [one for one in STATED[page]() if one not in text] == []
