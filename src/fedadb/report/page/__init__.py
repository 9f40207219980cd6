"""The page: one HTML file that contains everything it needs."""

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template
from plotly.offline import get_plotlyjs

DIRECTORY = Path(__file__).parent
SCRIPTS = (
    "elements", "actions", "plotting", "status", "tables", "curves", "sweeps", "convergence",
    "classes", "personal", "anchors", "analyses", "analysis_plots", "view", "main",
)  # fmt: skip
JSON_OPTIONS: dict[str, Any] = {
    "separators": (",", ":"),
    "ensure_ascii": False,
    "allow_nan": False,
    "sort_keys": False,
}


def render_page(data: dict[str, Any], live: bool = False) -> str:
    """The page with its data; a live one asks its server for new data every two seconds."""
    return _template().render(
        data=data,
        live=live,
        style=_read("page.css"),
        plotly=_packed_library(),
        scripts="\n".join(_read(f"{name}.js") for name in SCRIPTS),
    )


def to_json(data: dict[str, Any]) -> str:
    return json.dumps(data, **JSON_OPTIONS)


@cache
def _packed_library() -> str:
    """The plotting library, packed: as it is, it would be nearly all of a page's 5 MB."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


@cache
def _template() -> Template:
    # Autoescaping and `tojson` keep names in the data from being read as markup.
    environment = Environment(loader=FileSystemLoader(DIRECTORY), autoescape=True)
    environment.policies["json.dumps_kwargs"] = JSON_OPTIONS
    return environment.get_template("page.html")


def _read(name: str) -> str:
    return (DIRECTORY / name).read_text(encoding="utf-8")
