"""Writes a report: tables, figures and the page."""

from collections.abc import Callable
from pathlib import Path

from fedadb.report.cells import Table
from fedadb.report.comparison import Comparison
from fedadb.report.drawing import PICTURE_FORMATS, save_figure
from fedadb.report.formats import comma_separated, latex, markdown
from fedadb.report.page import render_page
from fedadb.report.page_data import page_data
from fedadb.report.plots import draw_all
from fedadb.report.tables import all_tables
from fedadb.storage.files import write_atomically

TABLE_FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "tex": latex,
    "csv": comma_separated,
}
PAGE = "index.html"


def write_report(comparison: Comparison, title: str, out: Path) -> Path:
    """Write all tables and figures and the page to a directory, and return the page's path.

    Tables and figures of an earlier report in the same directory are deleted.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in out.iterdir():
        if path.suffix[1:] in (*TABLE_FORMATS, *PICTURE_FORMATS):
            path.unlink()
    for table in all_tables(comparison):
        for ending, format_table in TABLE_FORMATS.items():
            write_atomically(out / f"{table.name}.{ending}", format_table(table).encode())
    for name, figure in draw_all(comparison).items():
        save_figure(figure, out / name)
    write_atomically(out / PAGE, render_page(page_data(comparison, title)).encode())
    return out / PAGE
