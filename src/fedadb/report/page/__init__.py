"""One page that holds all it needs, to open from disk or to watch over loopback."""

import json
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

HERE = Path(__file__).parent


def page(data: dict[str, Any], live: bool = False) -> str:
    """The page; a live one asks its server for `data.json` again and again."""
    parts = {
        "/*STYLE*/": _read("page.css"),
        "/*PLOTLY*/": get_plotlyjs(),
        "/*SCRIPT*/": _read("page.js"),
        "/*DATA*/": as_json(data).replace("<", "\\u003c"),  # or a name could end the script
        "<body>": "<body data-live>" if live else "<body>",
    }
    made = _read("page.html")
    for mark, part in parts.items():
        made = made.replace(mark, part, 1)
    return made


def as_json(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
