"""The pages of the documentation site that are made from the code, and its links."""

import re

import pytest
import typer

import fedadb
from fedadb.cli import app
from website.api_pages import api_pages
from website.commands_page import commands_page
from website.navigation import expand
from website.repository import DOCS, ROOT, rewrite_links, site_uri, source_pages
from website.settings_page import settings_page


def test_every_exported_name_is_on_one_page_of_the_reference() -> None:
    shown = [name for page in api_pages().values() for name in re.findall(r"^::: .+\.", page, re.M)]
    assert len(shown) == len(dir(fedadb))


def test_every_command_is_in_the_reference() -> None:
    page, root = commands_page(), typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {"": command})
        assert all(f"## fedadb {name} {one}".strip() in page for one in inner)


@pytest.mark.parametrize(
    "row",
    [
        # bounds, a choice, a range, a default of several numbers, and settings of real sites
        "| `federation.participation` | ρ: the share of clients in a round | `0.05`; 0.2 for ",
        "| a number above 0 and up to 1 | results |",
        '| "auto" or "torch" | rounding |',
        "| a number above 0, searched from 0.003 to 0.1 | results; agreed |",
        "| `[200, 200]` | a list, each a whole number from 1 and up to 1000000000 |",
        '| "server", "sites" or "both" | nothing; agreed |',
    ],
)
def test_the_reference_states_what_a_setting_allows_and_changes(row: str) -> None:
    assert row in settings_page()


def test_a_folder_in_the_navigation_stands_for_its_pages_by_title() -> None:
    pages = {"x/b.md": "# Anna", "x/a.md": "# Zoe", "x/README.md": "# Names", "x/y/c.md": "# Bea"}
    assert expand([{"Names": "x/"}], pages) == [{"Names": ["x/README.md", "x/b.md", "x/a.md"]}]


def test_links_lead_to_where_files_are_on_the_site() -> None:
    page = DOCS / "algorithms" / "fedprox.md"
    text = "[a](../../CONTRIBUTING.md#rules) [b](../../Makefile) [c](../data.md) [d](http://e.org)"
    assert rewrite_links(text, page) == (
        "[a](../contributing.md#rules) [b](../source/Makefile.md) [c](../data.md) [d](http://e.org)"
    )
    assert rewrite_links("[a](docs/data.md)", ROOT / "SECURITY.md") == "[a](data.md)"


def test_a_linked_file_outside_of_the_docs_has_a_page() -> None:
    path = ROOT / "examples" / "own_algorithm.py"
    assert site_uri(path) == "source/examples/own_algorithm.py.md"
    assert path.read_text() in source_pages()[path]
