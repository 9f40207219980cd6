"""A report: tables, figures and the page, in a directory."""

from collections.abc import Callable
from pathlib import Path

from fedadb.report import tables
from fedadb.report.figures import PICTURES, draw_all, save
from fedadb.report.formats import Table, comma_separated, latex, markdown
from fedadb.report.groups import Board
from fedadb.report.page import page
from fedadb.report.pagedata import page_data
from fedadb.storage.files import write_atomically

FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "tex": latex,
    "csv": comma_separated,
}
ENDINGS = (*FORMATS, *PICTURES)
PAGE = "index.html"


def write_report(board: Board, title: str, out: Path) -> Path:
    """Write all there is to show of the runs; where the page is."""
    out.mkdir(parents=True, exist_ok=True)
    for path in out.iterdir():  # of an earlier report, which may have had more
        if path.suffix[1:] in ENDINGS:
            path.unlink()
    for table in tables.everything(board):
        for ending, written in FORMATS.items():
            write_atomically(out / f"{table.name}.{ending}", written(table).encode())
    for name, figure in draw_all(board).items():
        save(figure, out / name)
    write_atomically(out / PAGE, page(page_data(board, title)).encode())
    return out / PAGE
