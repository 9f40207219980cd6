"""The page's data of a run's analyses: single numbers, what its plots draw, and pictures."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from fedadb.core.errors import Fault
from fedadb.report.recorded_runs import RecordedRun
from fedadb.report.thinning import rounded, thin
from fedadb.storage.run_directory import ANALYSIS

DRAWN = {  # the lists that the page draws, by analysis; of others, it shows single numbers
    "hessian": ("eigenvalues",),
    "landscape": ("steps", "loss"),
    "tsne": ("real", "class", "anchors", "anchor_class"),
    "pca": ("centres", "anchors", "anchor_class", "pearson_3"),
    "psnr": ("by_anchor", "anchor_class"),
}
MAX_IMAGES = 1000  # real images in a plot
MAX_ANCHORS = 200  # in a plot
PICTURES = ("psnr",)  # whose images are in no JSON file
SMALLER_WIDTHS = (1200, 800)
MAX_PICTURE_BYTES = 250_000


def analysis_data(run: RecordedRun) -> dict[str, dict[str, Any]]:
    """The results by analysis and model, without lists that the page does not draw."""
    shown = {}
    for name, results in run.analyses.items():
        try:
            fewer = {model: _fewer(name, numbers) for model, numbers in results.items()}
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            path = run.directory / ANALYSIS / f"{name}.json"
            raise Fault(
                f"{path} is damaged or of another version ({error!r}); delete it to show the page "
                "without it"
            ) from error
        shown[name] = _shown(fewer, DRAWN.get(name, ()))
    return shown


def analysis_pictures(run: RecordedRun) -> dict[str, str]:
    """The pictures of some analyses as URLs that contain them; none if it is too large."""
    paths = {name: run.directory / ANALYSIS / f"{name}.png" for name in PICTURES}
    pictures = {name: _data_url(path) for name, path in paths.items() if path.exists()}
    return {name: url for name, url in pictures.items() if url}


def _shown(value: Any, lists: tuple[str, ...]) -> Any:
    """Tables without other lists than these; numbers with four digits."""
    if isinstance(value, Mapping):
        return {
            key: _shown(v, lists)
            for key, v in value.items()
            if key in lists or not isinstance(v, list)
        }
    if isinstance(value, list):
        return [_shown(v, lists) for v in value]
    return rounded(value) if isinstance(value, float) else value


def _fewer(analysis: str, numbers: dict[str, Any]) -> dict[str, Any]:
    """The results with fewer real images and anchors, if there are many."""
    if analysis == "psnr":
        return _select(numbers, ("by_anchor", "anchor_class"), MAX_ANCHORS)
    if analysis == "tsne":
        return {
            when: _select(
                _select(one, ("real", "class"), MAX_IMAGES),
                ("anchors", "anchor_class"),
                MAX_ANCHORS,
            )
            for when, one in numbers.items()
        }
    if analysis == "pca":
        return {
            when: _select(_with_classes(one), ("anchors", "anchor_class", "pearson_3"), MAX_ANCHORS)
            for when, one in numbers.items()
        }
    return numbers


def _with_classes(numbers: dict[str, Any]) -> dict[str, Any]:
    """The correlations with the class of each anchor: every class has the same number, in order."""
    classes, anchors = len(numbers["centres"]), len(numbers["anchors"])
    return {**numbers, "anchor_class": [i * classes // anchors for i in range(anchors)]}


def _select(numbers: dict[str, Any], keys: tuple[str, ...], most: int) -> dict[str, Any]:
    """The numbers; lists that belong together are thinned at the same positions."""
    points = thin(len(numbers[keys[0]]), most)
    return {**numbers, **{key: [numbers[key][i] for i in points] for key in keys}}


def _data_url(path: Path) -> str | None:
    """The picture as a URL that contains it, smaller if it has too many bytes."""
    try:
        png = path.read_bytes()
        with Image.open(io.BytesIO(png), formats=["PNG"]) as opened:
            picture = opened.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise Fault(
            f"{path} is damaged ({error}); delete it to show the page without it"
        ) from error
    for width in SMALLER_WIDTHS:
        if len(png) <= MAX_PICTURE_BYTES:
            break
        picture.thumbnail((width, width))
        file = io.BytesIO()
        picture.quantize(256).save(file, "PNG", optimize=True)
        png = file.getvalue()
    if len(png) > MAX_PICTURE_BYTES:
        return None
    return "data:image/png;base64," + base64.b64encode(png).decode()
