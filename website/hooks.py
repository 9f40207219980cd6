"""What mkdocs calls while it builds the site."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website.api_pages import api_pages
from website.commands_page import commands_page
from website.navigation import expand
from website.repository import DOCS, TOP_PAGES, rewrite_links, site_uri, source_pages
from website.settings_page import settings_page


def generated_pages() -> dict[str, str]:
    """The pages that are not files in docs/, by their place in the site."""
    pages = {uri: rewrite_links(path.read_text(), path) for path, uri in TOP_PAGES.items()}
    pages |= {site_uri(path): text for path, text in source_pages().items()}
    pages |= {f"reference/api/{name}": text for name, text in api_pages().items()}
    return pages | {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and put the pages of folders into the navigation."""
    generated = generated_pages()
    for uri, text in generated.items():
        files.append(File.generated(config, uri, content=text))
    written = {site_uri(path): path.read_text() for path in DOCS.rglob("*.md")}
    config.nav = expand(config.nav, written | generated)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files outside of docs/ lead to their pages."""
    if page.file.generated_by:
        return markdown
    return rewrite_links(markdown, DOCS / page.file.src_uri)
