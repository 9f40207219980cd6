"""Files of the repository on the site: where each one is, and links between them.

A page in docs/ may link to any file of the repository, so that the link works where the repository
is browsed. On the site, such a file has a page of its own.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# Pages that people look for at the top of a repository.
TOP_PAGES = {
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "SECURITY.md": "security.md",
}
LINK = re.compile(r"(?<!!)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".conf": "nginx"}


def site_uri(path: Path) -> str:
    """Where a file of the repository is on the site."""
    if path in TOP_PAGES:
        return TOP_PAGES[path]
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def linked_files(page: Path) -> set[Path]:
    """The files of the repository to which a page links. mkdocs finds broken links."""
    targets = (page.parent / found[0] for found in LINK.findall(page.read_text()))
    return {path for target in targets if (path := Path(os.path.normpath(target))).exists()}


def rewrite_links(markdown: str, page: Path) -> str:
    """The text of a page, with links that lead to where files are on the site."""
    here = Path(site_uri(page)).parent

    def link(found: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / found[1]))
        if not path.exists():
            return found[0]  # mkdocs reports it
        return f"]({os.path.relpath(site_uri(path), here)}{found[2] or ''})"

    return LINK.sub(link, markdown)


def source_page(path: Path) -> str:
    """A page that shows a file, or all files of a directory."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    blocks = [
        f"## {file.name}\n\n~~~~{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}~~~~\n"
        for file in files
    ]
    title = path.relative_to(ROOT).as_posix()
    return "\n".join(["---\nsearch: {exclude: true}\n---", f"# {title}\n", *blocks])


def source_pages() -> dict[Path, str]:
    """The pages of all files outside of docs/ that a page links to."""
    pages = [*DOCS.rglob("*.md"), *TOP_PAGES]
    linked = {path for page in pages for path in linked_files(page)}
    shown = {path for path in linked if site_uri(path).startswith("source/")}
    return {path: source_page(path) for path in sorted(shown)}
