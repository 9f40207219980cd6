"""What the page shows, as plain data: all of it drawn from the runs' own files."""

import base64
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open

from fedadb.core.errors import Fault
from fedadb.report import tables
from fedadb.report.formats import Table
from fedadb.report.groups import Board, colours
from fedadb.report.runs import Run
from fedadb.report.statistics import ewma
from fedadb.storage.records import REQUIRED
from fedadb.storage.run_directory import ANALYSIS, ENVIRONMENT, EXPERIMENT, PARTITION, kept_files

POINTS = 500  # of a curve
CLASS_VALUES = 2_000_000  # of class accuracies, in all runs together
SIDE = 64  # of an anchor's picture, in pixels, at most
COST = re.compile(r"_seconds$|^bytes_")  # in the names of what is recorded


def page_data(board: Board, title: str) -> dict[str, Any]:
    runs = [run for at in board.at.values() for run in at]
    classes = sum(len(run.rounds[0]["class_accuracy"]) for run in runs)
    kept = max(2, CLASS_VALUES // classes)  # rounds of each run whose classes are shown
    shown = []
    for column in board.columns:
        cells = board.cells(column)
        # One choice of rounds for all runs of a setting, so that they can be averaged by place.
        longest = max(len(run.rounds) for at in cells.values() for run in at)
        curve, by_class = thin(longest, POINTS), thin(longest, kept)
        for row, at in cells.items():
            shown += [
                {"method": row, "setting": column, **_run(run, curve, by_class)} for run in at
            ]
    return {
        "title": title,
        "rows": board.rows,
        "columns": board.columns,
        "colours": colours(board),
        "tables": {table.name: _table(table) for table in tables.everything(board)},
        "runs": shown,
    }


def _table(table: Table) -> dict[str, Any]:
    return {**table._asdict(), "rows": [[e._asdict() for e in row] for row in table.rows]}


def _run(run: Run, curve: Sequence[int], by_class: Sequence[int]) -> dict[str, Any]:
    def thinned(values: Sequence[float | None]) -> list[float | None]:
        return [_short(values[i]) for i in curve if i < len(values)]

    losses = [record["loss"] for record in run.rounds]
    return {
        "seed": run.seed,
        "directory": run.directory.name,
        "done": len(run.rounds),
        "total": run.total,
        "t": [i + 1 for i in curve if i < len(run.rounds)],
        "accuracy": thinned(run.accuracy),
        "smooth accuracy": thinned(ewma(run.accuracy)),  # before rounds are left out
        "loss": thinned(losses),
        "smooth loss": thinned(ewma(losses)) if None not in losses else thinned(losses),
        # Whatever else is recorded: τ and β, say, and what it all costs after that.
        "measured": {
            key: thinned([record.get(key) for record in run.rounds])
            for key in sorted(run.rounds[0], key=lambda key: bool(COST.search(key)))
            if key not in REQUIRED and isinstance(run.rounds[0][key], (int, float, type(None)))
        },
        "class_t": [i + 1 for i in by_class if i < len(run.rounds)],
        # In thousandths: short to write, and no finer than a test set of a thousand images.
        "class_accuracy": [
            [None if a is None else round(1000 * a) for a in run.rounds[i]["class_accuracy"]]
            for i in by_class
            if i < len(run.rounds)
        ],
        "partition": run.beside(PARTITION),
        "anchors": [_anchors(t, path) for t, path in kept_files(run.directory).items()],
        "analysis": {
            path.stem: run.beside(f"{ANALYSIS}/{path.name}")
            for path in sorted((run.directory / ANALYSIS).glob("*.json"))
        },
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
            x, c, confidence = (file.get_tensor(f"anchors/{n}") for n in ("x", "c", "confidence"))
            low, high = (file.get_tensor(side)[:, None, None] for side in ("low", "high"))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise Fault(f"{path} is damaged ({error}); delete it to do without it") from error
    pixels = x  # if they were sent as pixels
    if x.dtype != np.uint8:
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
