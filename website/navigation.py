"""The navigation: folders in mkdocs.yml stand for their pages."""

from collections.abc import Mapping
from typing import Any


def title(markdown: str) -> str:
    """The first heading of a page."""
    return next(line[2:] for line in markdown.splitlines() if line.startswith("# "))


def expand(nav: Any, pages: Mapping[str, str]) -> Any:
    """The navigation with pages in place of folders.

    Args:
        nav: As in mkdocs.yml: lists, tables of one entry, and names of pages or folders.
        pages: The text of each page by its place in the site.
    """
    if isinstance(nav, list):
        return [expand(one, pages) for one in nav]
    if isinstance(nav, dict):
        return {name: expand(one, pages) for name, one in nav.items()}
    return _pages_of(nav, pages) if nav.endswith("/") else nav


def _pages_of(folder: str, pages: Mapping[str, str]) -> list[str]:
    inside = [uri for uri in pages if uri.startswith(folder) and "/" not in uri[len(folder) :]]
    first = [uri for uri in inside if uri.endswith(("/README.md", "/index.md"))]
    rest = sorted(set(inside) - set(first), key=lambda uri: title(pages[uri]).lower())
    return [*first, *rest]
