"""What the page shows, as plain data: all of it drawn from the runs' own files."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open

from fedadb.core.errors import Fault
from fedadb.core.files import ENVIRONMENT, EXPERIMENT, PARTITION
from fedadb.engine.record import ALWAYS
from fedadb.report import paper, tables
from fedadb.report.formats import Table
from fedadb.report.groups import Board, colours
from fedadb.report.runs import Run, anchor_files

POINTS = 500  # of a curve
CLASS_VALUES = 2_000_000  # of class accuracies, in all runs together
SIDE = 64  # of an anchor's picture, in pixels, at most


def page_data(board: Board, title: str) -> dict[str, Any]:
    runs = [(row, column, run) for (row, column), at in board.at.items() for run in at]
    classes = sum(len(run.rounds[0]["class_accuracy"]) for _, _, run in runs)
    kept = max(2, CLASS_VALUES // classes)  # rounds of each run whose classes are shown
    return {
        "title": title,
        "rows": board.rows,
        "columns": board.columns,
        "colours": colours(board),
        "tables": {table.name: _table(table) for table in tables.everything(board)},
        "runs": [_run(row, column, run, kept) for row, column, run in runs],
    }


def _table(table: Table) -> dict[str, Any]:
    return {**table._asdict(), "rows": [[e._asdict() for e in row] for row in table.rows]}


def _run(row: str, column: str, run: Run, kept: int) -> dict[str, Any]:
    curve, by_class = thin(len(run.rounds), POINTS), thin(len(run.rounds), kept)
    records = [run.rounds[i] for i in curve]
    published = paper.published(run)
    return {
        "method": row,
        "setting": column,
        "seed": run.seed,
        "directory": run.directory.name,
        "done": len(run.rounds),
        "total": run.total,
        "paper": None if published is None else published.mean / 100,
        "t": [record["round"] for record in records],
        "accuracy": [_short(record["accuracy"]) for record in records],
        "loss": [_short(record["loss"]) for record in records],
        # Whatever else an algorithm records: τ and β, say.
        "measured": {
            key: [_short(record.get(key)) for record in records]
            for key in sorted(run.rounds[0], key=lambda key: key.endswith("_seconds"))
            if key not in ALWAYS and isinstance(run.rounds[0][key], (int, float, type(None)))
        },
        "class_t": [run.rounds[i]["round"] for i in by_class],
        # In thousandths: short to write, and no finer than a test set of a thousand images.
        "class_accuracy": [
            [None if a is None else round(1000 * a) for a in run.rounds[i]["class_accuracy"]]
            for i in by_class
        ],
        "partition": run.beside(PARTITION),
        "anchors": [_anchors(t, path) for t, path in anchor_files(run.directory).items()],
        "experiment": (run.directory / EXPERIMENT).read_text(encoding="utf-8"),
        "environment": json.dumps(run.beside(ENVIRONMENT), indent=2),
    }


def thin(n: int, most: int) -> list[int]:
    """At most so many of 0, …, n − 1, evenly spaced, with the first and the last."""
    if n <= most:
        return list(range(n))
    return sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _anchors(t: int, path: Path) -> dict[str, Any]:
    """The anchors of a round as pictures, each with its class and confidence."""
    try:
        with safe_open(path, framework="np") as file:
            about = json.loads((file.metadata() or {}).get("fedadb", "{}"))
            x, c, confidence = (file.get_tensor(f"anchors/{n}") for n in ("x", "c", "confidence"))
    except (SafetensorError, OSError, ValueError) as error:
        raise Fault(f"{path} is damaged ({error}); delete it to do without it") from error
    low, high = (np.array(json.loads(about[side]))[:, None, None] for side in ("low", "high"))
    pixels = (255 * (x - low) / (high - low)).clip(0, 255).astype(np.uint8)
    return {
        "round": t,
        "pictures": [
            {"class": int(k), "confidence": _short(float(p)), "image": _picture(image)}
            for image, k, p in zip(pixels, c, confidence, strict=True)
        ],
    }


def _picture(image: np.ndarray) -> str:
    """A data address of the image (channels × height × width)."""
    plain = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    plain.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    plain.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
